"""What every room uses: errors, checks of arguments, states, the user's cache."""
