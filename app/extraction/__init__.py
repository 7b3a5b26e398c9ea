"""Tables from texts: rows of the columns that a person names, whose cells are words of the text."""
