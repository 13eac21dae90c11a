-- Version 1. Text columns named in the records hold serde's JSON of them.
CREATE TABLE run (
    key             INTEGER PRIMARY KEY AUTOINCREMENT,
    id              TEXT    NOT NULL UNIQUE,
    title           TEXT    NOT NULL,
    created_unix_ms INTEGER NOT NULL,
    status          TEXT    NOT NULL,
    plan_toml       TEXT    NOT NULL,
    seed            INTEGER NOT NULL, -- the bits of an unsigned 64-bit number
    code_version    TEXT    NOT NULL,
    provenance      TEXT    NOT NULL, -- JSON object
    notes           TEXT    NOT NULL  -- JSON object
) STRICT;

CREATE TABLE cell (
    run        INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE,
    id         INTEGER NOT NULL,
    experiment TEXT    NOT NULL,
    factors    TEXT    NOT NULL, -- JSON object
    response   TEXT    NOT NULL,
    unit       TEXT    NOT NULL,
    better     TEXT    NOT NULL,
    state      TEXT    NOT NULL, -- open, done, unavailable, failed
    reason     TEXT    NOT NULL, -- empty when open
    imported   TEXT,             -- JSON object
    PRIMARY KEY (run, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE launch (
    run          INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE,
    id           INTEGER NOT NULL,
    round        INTEGER NOT NULL,
    launch_group TEXT    NOT NULL,
    started_ns   INTEGER NOT NULL,
    PRIMARY KEY (run, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE block (
    key             INTEGER PRIMARY KEY AUTOINCREMENT, -- the order of measuring
    run             INTEGER NOT NULL,
    cell            INTEGER NOT NULL,
    launch          INTEGER NOT NULL,
    pass            INTEGER NOT NULL,
    batch           INTEGER NOT NULL,
    n               INTEGER NOT NULL,
    warmup          INTEGER NOT NULL,
    samples         BLOB    NOT NULL, -- sqlite/samples.rs
    histogram       BLOB    NOT NULL, -- HDR V2 + deflate, or empty
    histogram_scale REAL    NOT NULL,
    effort          TEXT    NOT NULL, -- JSON object
    counters        TEXT    NOT NULL, -- JSON object
    flags           TEXT    NOT NULL, -- JSON array
    UNIQUE (run, launch, cell, pass),
    FOREIGN KEY (run, cell)   REFERENCES cell (run, id)   ON DELETE CASCADE,
    FOREIGN KEY (run, launch) REFERENCES launch (run, id) ON DELETE CASCADE
) STRICT;

CREATE INDEX block_of_cell ON block (run, cell);
