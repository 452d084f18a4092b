// Einstein sums of one or two operands.
