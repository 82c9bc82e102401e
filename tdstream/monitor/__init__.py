"""What a training loop waits for: waiting times, their quantiles, the verdict, the extent of an epoch."""
