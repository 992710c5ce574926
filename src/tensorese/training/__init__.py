"""Records to models: reading, grouping, losses, the loop, recipes."""
