// The vector loops of one instruction-set level.
