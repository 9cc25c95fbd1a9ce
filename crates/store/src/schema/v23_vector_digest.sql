-- What the numbers of a live vector were when they were stored: any bits are some numbers, so nothing else tells that a
-- disk has changed them. A vector of before this step has none until it is stored again. Beside `vector_metadata` and not
-- in it: its content stands last there, and a search reads these of every row.
CREATE TABLE vector_digest (
    place INTEGER PRIMARY KEY,
    digest BLOB NOT NULL CHECK (length(digest) = 16)
) STRICT;
