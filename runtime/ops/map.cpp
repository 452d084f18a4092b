// Element-wise operations.
