-- Version 2. What was read while a run was measured and could explain its results.
CREATE TABLE evidence (
    run  INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE,
    name TEXT    NOT NULL, -- the schema of the document: plumb.net/1
    body TEXT    NOT NULL, -- the document, as JSON
    PRIMARY KEY (run, name)
) STRICT;
