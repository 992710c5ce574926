"""Teaching the models a platform they have not seen, in minutes of measuring."""
