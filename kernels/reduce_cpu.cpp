// Sums, maxima and minima on the CPU.
