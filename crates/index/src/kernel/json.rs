//! JSON: a text split into tokens (RFC 8259), its numbers and strings read.

use crate::kernel::{FnvHash, InputGenerator};

const LEN: usize = 1 << 20;
const PASSES: u32 = 5;

/// An array of objects with strings, numbers and arrays in them.
pub(super) fn input() -> Vec<u8> {
    let mut generator = InputGenerator::new(0x150A);
    let mut text = String::with_capacity(LEN + 256);
    text.push('[');
    let mut id = 0;
    while text.len() < LEN {
        let [price, stock, tag, flag] = [100_000, 500, 97, 2].map(|end| generator.below(end));
        let [whole, cents] = [price / 100, price % 100];
        let truth = if flag == 0 { "true" } else { "null" };
        let object = format!(
            "{{\"id\":{id},\"name\":\"part \\\"{tag}\\\" of {stock}\",\"price\":{whole}.{cents:02},\
             \"stock\":[{stock},-{tag},{price}],\"on\":{truth}}},\n"
        );
        text += &object;
        id += 1;
    }
    text += "{}]";
    text.into_bytes()
}

pub(super) fn run(text: &[u8]) -> u64 {
    let mut tokens = TokenCounts::default();
    for _ in 0..PASSES {
        let mut at = 0;
        while at < text.len() {
            at = tokens.take(text, at);
        }
    }
    let mut hash = FnvHash::new();
    for count in [
        tokens.punctuation,
        tokens.words,
        tokens.depth_max,
        tokens.depth,
        tokens.number_sum,
        tokens.string_sum,
    ] {
        hash.number(count);
    }
    hash.finish()
}

#[derive(Debug, Default)]
struct TokenCounts {
    punctuation: u64,
    words: u64,
    depth: u64,
    depth_max: u64,
    number_sum: u64,
    string_sum: u64,
}

impl TokenCounts {
    /// Takes the token at a place; the place behind it.
    fn take(&mut self, text: &[u8], at: usize) -> usize {
        match text[at] {
            b' ' | b'\n' | b'\r' | b'\t' => at + 1,
            b'{' | b'[' => {
                self.depth += 1;
                self.depth_max = self.depth_max.max(self.depth);
                at + 1
            }
            b'}' | b']' => {
                self.depth = self.depth.wrapping_sub(1);
                at + 1
            }
            b':' | b',' => {
                self.punctuation += 1;
                at + 1
            }
            b'"' => self.take_string(text, at + 1),
            b'-' | b'0'..=b'9' => self.take_number(text, at),
            _ => {
                self.words += 1;
                at + text[at..].iter().take_while(|byte| byte.is_ascii_alphabetic()).count().max(1)
            }
        }
    }

    fn take_string(&mut self, text: &[u8], from: usize) -> usize {
        let mut at = from;
        let mut sum = 0_u64;
        while at < text.len() && text[at] != b'"' {
            at += usize::from(text[at] == b'\\');
            sum = sum.wrapping_mul(31).wrapping_add(u64::from(text[at]));
            at += 1;
        }
        self.string_sum = self.string_sum.wrapping_add(sum);
        at + 1
    }

    /// Digits of a number with at most one point, as hundredths.
    fn take_number(&mut self, text: &[u8], from: usize) -> usize {
        let is_negative = text[from] == b'-';
        let mut at = from + usize::from(is_negative);
        let (mut number, mut decimals, mut is_behind_point) = (0_u64, 0, false);
        while let Some(&byte) = text.get(at) {
            match byte {
                b'0'..=b'9' => {
                    number = number.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
                    decimals += u32::from(is_behind_point);
                }
                b'.' => is_behind_point = true,
                _ => break,
            }
            at += 1;
        }
        let hundredths = number.wrapping_mul(10_u64.pow(2_u32.saturating_sub(decimals)));
        self.number_sum = if is_negative {
            self.number_sum.wrapping_sub(hundredths)
        } else {
            self.number_sum.wrapping_add(hundredths)
        };
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_counted_and_numbers_summed() {
        let mut tokens = TokenCounts::default();
        let text = br#"{"a\"b": [1.5, -2, true], "c": {}}"#;
        let mut at = 0;
        while at < text.len() {
            at = tokens.take(text, at);
        }
        assert_eq!((tokens.depth, tokens.depth_max, tokens.punctuation), (0, 2, 5));
        assert_eq!((tokens.words, tokens.number_sum), (1, 150_u64.wrapping_sub(200)));
    }
}
