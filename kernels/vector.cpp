// Chooses the vector loops that this processor can run.
