//! LZ77 both ways: matches by hash chains, tokens of a byte each and more, expanded again.

use crate::kernel::{FnvHash, text};

const LEN: usize = 384 << 10;
const HASH_BITS: u32 = 14;
const WINDOW: usize = 32 << 10;
const MATCH_MIN: usize = 4;
const MATCH_MAX: usize = 131;
const CHAIN_MAX: usize = 12;
const NONE: u32 = u32::MAX;

/// The text, and room for everything that is made of it.
#[derive(Debug)]
pub(super) struct PackedText {
    text: Vec<u8>,
    head: Vec<u32>,
    previous: Vec<u32>,
    packed: Vec<u8>,
    unpacked: Vec<u8>,
}

impl PackedText {
    pub(super) fn new() -> Self {
        Self {
            text: text(0x4C5A, LEN),
            head: vec![NONE; 1 << HASH_BITS],
            previous: vec![NONE; WINDOW],
            packed: Vec::with_capacity(2 * LEN),
            unpacked: Vec::with_capacity(LEN),
        }
    }

    pub(super) fn run(&mut self) -> u64 {
        self.compress();
        expand(&self.packed, &mut self.unpacked);
        let mut hash = FnvHash::new();
        hash.number(self.packed.len() as u64);
        hash.number(u64::from(self.unpacked == self.text));
        for chunk in self.packed.chunks(64) {
            hash.byte(chunk[0]);
        }
        hash.finish()
    }

    fn compress(&mut self) {
        self.head.fill(NONE);
        self.packed.clear();
        let (mut at, mut literals_from) = (0, 0);
        while at + MATCH_MIN <= self.text.len() {
            let found = self.longest_match(at);
            let Some((distance, length)) = found else {
                self.insert(at);
                at += 1;
                continue;
            };
            self.put_literals(literals_from, at);
            self.packed.push(0x80 | (length - MATCH_MIN) as u8);
            self.packed.extend_from_slice(&(distance as u16).to_le_bytes());
            for inside in at..at + length {
                self.insert(inside);
            }
            at += length;
            literals_from = at;
        }
        self.put_literals(literals_from, self.text.len());
    }

    /// Runs of up to 128 literal bytes, each behind its length.
    fn put_literals(&mut self, from: usize, to: usize) {
        for run in self.text[from..to].chunks(128) {
            self.packed.push((run.len() - 1) as u8);
            self.packed.extend_from_slice(run);
        }
    }

    fn hash(&self, at: usize) -> Option<usize> {
        let bytes = self.text.get(at..at + MATCH_MIN)?.try_into().ok()?;
        Some((u32::from_le_bytes(bytes).wrapping_mul(0x9E37_79B1) >> (32 - HASH_BITS)) as usize)
    }

    fn insert(&mut self, at: usize) {
        if let Some(hash) = self.hash(at) {
            self.previous[at % WINDOW] = self.head[hash];
            self.head[hash] = at as u32;
        }
    }

    /// Distance and length of the longest earlier match.
    fn longest_match(&self, at: usize) -> Option<(usize, usize)> {
        let mut candidate = self.head[self.hash(at)?];
        let mut best = (0, MATCH_MIN - 1);
        for _ in 0..CHAIN_MAX {
            let from = candidate as usize;
            if candidate == NONE || at - from >= WINDOW {
                break;
            }
            let ahead = self.text[at..].iter().zip(&self.text[from..]).take(MATCH_MAX);
            let length = ahead.take_while(|(a, b)| a == b).count();
            if length > best.1 {
                best = (at - from, length);
            }
            candidate = self.previous[from % WINDOW];
        }
        (best.1 >= MATCH_MIN).then_some(best)
    }
}

fn expand(packed: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut rest = packed;
    while let Some((&token, after)) = rest.split_first() {
        if token & 0x80 == 0 {
            let (literals, after) = after.split_at(usize::from(token) + 1);
            out.extend_from_slice(literals);
            rest = after;
        } else {
            let distance = usize::from(u16::from_le_bytes([after[0], after[1]]));
            let from = out.len() - distance;
            for index in from..from + usize::from(token & 0x7F) + MATCH_MIN {
                out.push(out[index]);
            }
            rest = &after[2..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_smaller_packed_and_the_same_unpacked() {
        let mut input = PackedText::new();
        input.run();
        assert_eq!(input.unpacked, input.text);
        assert!(input.packed.len() < LEN * 3 / 4, "{}", input.packed.len());
    }
}
