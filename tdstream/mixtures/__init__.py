"""How sources are interleaved: weights, periods, schedules; all pure functions of a position."""
