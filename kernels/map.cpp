// Names of element-wise operations and programs as text.
