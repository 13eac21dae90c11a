-- Version 3. What all samples of a block are worth, of which only the first are stored raw.
ALTER TABLE block ADD COLUMN n_eff TEXT NOT NULL DEFAULT 'null'; -- JSON array of numbers, or null
