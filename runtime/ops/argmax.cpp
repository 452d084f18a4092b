// Index of the first largest or smallest element.
