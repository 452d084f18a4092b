// Sums, maxima and minima over dimensions.
