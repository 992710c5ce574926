"""Ways to see a program as numbers: `base` names them all."""
