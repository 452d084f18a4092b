// Operations without operands: constants, indices, random numbers.
