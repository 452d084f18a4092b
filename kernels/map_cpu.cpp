// Runs element-wise programs on the CPU, tile by tile.
