// Matrix products on the CPU: the one file that knows oneDNN.
