//! A frame: an index of a color for each pixel, eight pixels to a word, its checksum, and the same as a PNG file
//! (ISO/IEC 15948).

use std::io::Write as _;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

use crate::geometry::GridExtent;
use crate::item::FillStipple;

/// Pixels of a word.
const WORD: usize = 8;
/// One in each pixel of a word.
const EVERY: u64 = 0x0101_0101_0101_0101;
/// Multiplier of the checksum: odd, about 2⁶⁴ divided by the golden ratio (Knuth, TAOCP 3, 6.4).
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// For each stipple and each of eight rows, which pixels are drawn.
const PATTERNS: [[u64; 8]; 5] = {
    let mut patterns = [[0; 8]; 5];
    let mut row = 0;
    while row < 8 {
        patterns[FillStipple::Solid as usize][row] = u64::MAX;
        patterns[FillStipple::Rising as usize][row] = pixels(0x11 << (3 - row % 4));
        patterns[FillStipple::Falling as usize][row] = pixels(0x11 << (row % 4));
        patterns[FillStipple::Rows as usize][row] = if row % 2 == 0 { u64::MAX } else { 0 };
        patterns[FillStipple::Dots as usize][row] =
            if row % 2 == 0 { pixels(0x11 << (row % 4)) } else { 0 };
        row += 1;
    }
    patterns
};

/// The pixels of a byte's bits, the leftmost in bit 0.
const fn pixels(bits: u32) -> u64 {
    let mut mask = 0;
    let mut pixel = 0;
    while pixel < 8 {
        if bits >> pixel & 1 == 1 {
            mask |= 0xff << (8 * pixel);
        }
        pixel += 1;
    }
    mask
}

/// The pixels of every byte of bits.
static PIXELS: [u64; 256] = {
    let mut table = [0; 256];
    let mut bits = 0;
    while bits < 256 {
        table[bits as usize] = pixels(bits);
        bits += 1;
    }
    table
};

/// A frame.
#[derive(Clone, Debug)]
pub struct DisplayFrame {
    width: u16,
    height: u16,
    /// Words of a row.
    stride: usize,
    words: Vec<u64>,
    /// Hash of each row, but of those in `stale`.
    rows: Vec<u64>,
    /// Rows drawn on since they were hashed: from, up to.
    stale: (usize, usize),
}

impl DisplayFrame {
    /// Of color 0 everywhere.
    pub fn new(width: u16, height: u16) -> Self {
        let stride = usize::from(width).div_ceil(WORD);
        let rows = usize::from(height);
        let words = vec![0; stride * rows];
        Self { width, height, stride, words, rows: vec![0; rows], stale: (0, rows) }
    }

    /// Bytes that a frame of this size takes.
    pub fn bytes(width: u16, height: u16) -> usize {
        (usize::from(width).div_ceil(WORD) + 1) * usize::from(height) * size_of::<u64>()
    }

    /// Width in pixels.
    pub const fn width(&self) -> u16 {
        self.width
    }

    /// Height in pixels.
    pub const fn height(&self) -> u16 {
        self.height
    }

    /// All of its pixels.
    pub fn extent(&self) -> GridExtent {
        GridExtent { x0: 0, y0: 0, x1: self.width.into(), y1: self.height.into() }
    }

    /// The color of a pixel; none outside.
    pub fn color(&self, x: u16, y: u16) -> Option<u8> {
        let (x, y) = (usize::from(x), usize::from(y));
        let is_inside = x < usize::from(self.width) && y < usize::from(self.height);
        is_inside.then(|| self.words[y * self.stride + x / WORD].to_le_bytes()[x % WORD])
    }

    /// The colors of a row.
    pub(crate) fn row(&self, y: usize) -> impl Iterator<Item = u8> + '_ {
        let words = &self.words[y * self.stride..][..self.stride];
        words.iter().flat_map(|word| word.to_le_bytes()).take(self.width.into())
    }

    /// Fills an extent, as far as the frame has it; the words touched.
    pub(crate) fn fill(&mut self, extent: &GridExtent, color: u8, stipple: usize) -> u64 {
        let Some((columns, rows)) = self.ranges(extent) else { return 0 };
        let (first, last) = (columns.0 / WORD, (columns.1 - 1) / WORD);
        let head = u64::MAX << (8 * (columns.0 % WORD));
        let tail = u64::MAX >> (8 * (WORD - 1 - (columns.1 - 1) % WORD));
        let color = u64::from(color) * EVERY;
        let patterns = &PATTERNS[stipple];
        for y in rows.0..rows.1 {
            let pattern = patterns[y % 8];
            let words = &mut self.words[y * self.stride + first..=y * self.stride + last];
            if let [only] = words {
                paint(only, pattern & head & tail, color);
            } else if let [start, middle @ .., end] = words {
                paint(start, pattern & head, color);
                for word in middle {
                    paint(word, pattern, color);
                }
                paint(end, pattern & tail, color);
            }
        }
        ((last - first + 1) * (rows.1 - rows.0)) as u64
    }

    /// Sets the eight pixels from `x` whose bits are set, as far as `clip`, which is within the frame, has them.
    pub(crate) fn draw_bits(&mut self, x: i32, y: i32, bits: u8, color: u8, clip: &GridExtent) {
        if bits == 0 || y < clip.y0 || y >= clip.y1 || x >= clip.x1 || x + 8 <= clip.x0 {
            return;
        }
        let mut bits = u32::from(bits);
        bits &= 0xff << (clip.x0 - x).clamp(0, 8);
        bits &= 0xff >> (x + 8 - clip.x1).clamp(0, 8);
        let mask = PIXELS[bits as usize & 0xff];
        let (Ok(y), Ok(left)) = (usize::try_from(y), usize::try_from(x.max(0))) else { return };
        // Pixels left of the edge were masked off.
        let mask = mask >> (8 * x.min(0).unsigned_abs().min(7));
        let shift = 8 * (left % WORD);
        let at = y * self.stride + left / WORD;
        let color = u64::from(color) * EVERY;
        paint(&mut self.words[at], mask << shift, color);
        let over = if shift == 0 { 0 } else { mask >> (64 - shift) };
        if over != 0 {
            paint(&mut self.words[at + 1], over, color);
        }
        self.touch(y, y + 1);
    }

    /// Sets a pixel that lies within the frame, in a row that is touched already.
    pub(crate) fn set(&mut self, x: i32, y: i32, color: u8) {
        let (Ok(x), Ok(y)) = (usize::try_from(x), usize::try_from(y)) else { return };
        let shift = 8 * (x % WORD);
        let mask = 0xff << shift;
        paint(&mut self.words[y * self.stride + x / WORD], mask, u64::from(color) << shift);
    }

    /// Draws a line that lies within the frame, from its first pixel on, along its columns: pixels of a word are painted at once.
    pub(crate) fn draw_flat(
        &mut self,
        from: (usize, usize),
        count: usize,
        line: &LineWalk,
        color: u8,
    ) {
        let ((x, y), color) = (from, u64::from(color) * EVERY);
        let (mut at, mut shift) = (y * self.stride + x / WORD, 8 * (x % WORD));
        let row = if line.sign < 0 { self.stride.wrapping_neg() } else { self.stride };
        let (mut mask, mut error) = (0_u64, line.error);
        for _ in 0..count {
            mask |= 0xff << shift;
            shift += 8;
            error += line.rise;
            let turns = error >= line.step;
            if turns || shift == 64 {
                paint(&mut self.words[at], mask, color);
                mask = 0;
                if turns {
                    error -= line.step;
                    at = at.wrapping_add(row);
                }
                if shift == 64 {
                    shift = 0;
                    at = at.wrapping_add(1);
                }
            }
        }
        if mask != 0 {
            paint(&mut self.words[at], mask, color);
        }
    }

    /// The same along its rows.
    pub(crate) fn draw_steep(
        &mut self,
        from: (usize, usize),
        count: usize,
        line: &LineWalk,
        color: u8,
    ) {
        let ((x, y), color) = (from, u64::from(color) * EVERY);
        let (mut at, mut mask) = (y * self.stride + x / WORD, 0xff_u64 << (8 * (x % WORD)));
        let mut error = line.error;
        for _ in 0..count {
            paint(&mut self.words[at], mask, color);
            at += self.stride;
            error += line.rise;
            if error >= line.step {
                error -= line.step;
                if line.sign < 0 {
                    at -= usize::from(mask == 0xff);
                    mask = mask.rotate_right(8);
                } else {
                    mask = mask.rotate_left(8);
                    at += usize::from(mask == 0xff);
                }
            }
        }
    }

    /// Notes that rows are drawn on.
    pub(crate) fn touch_rows(&mut self, extent: &GridExtent) {
        self.ranges(extent);
    }

    /// Columns and rows of an extent that the frame has, which are then to be hashed again.
    fn ranges(&mut self, extent: &GridExtent) -> Option<((usize, usize), (usize, usize))> {
        let inside = extent.intersection(&self.extent());
        if inside.is_empty() {
            return None;
        }
        let at = |value| usize::try_from(value).expect("within the frame");
        let rows = (at(inside.y0), at(inside.y1));
        self.touch(rows.0, rows.1);
        Some(((at(inside.x0), at(inside.x1)), rows))
    }

    fn touch(&mut self, from: usize, to: usize) {
        let (old_from, old_to) = self.stale;
        self.stale =
            if old_from < old_to { (old_from.min(from), old_to.max(to)) } else { (from, to) };
    }

    /// Moves what is shown by so many pixels; what comes from outside is not drawn.
    pub(crate) fn shift(&mut self, dx: i32, dy: i32) {
        let mut moved = vec![0; self.words.len()];
        let (width, height) = (i32::from(self.width), i32::from(self.height));
        let rows = (dy.max(0), height + dy.min(0));
        let (from, to) = (dx.max(0), width + dx.min(0));
        let mut bytes = vec![0; self.stride * WORD];
        for y in rows.0..rows.1 {
            if from >= to {
                break;
            }
            let at = |value: i32| usize::try_from(value).expect("both rows are within the frame");
            for (place, color) in bytes.iter_mut().zip(self.row(at(y - dy))) {
                *place = color;
            }
            let mut row = vec![0; self.stride * WORD];
            row[at(from)..at(to)].copy_from_slice(&bytes[at(from - dx)..at(to - dx)]);
            let words = &mut moved[at(y) * self.stride..][..self.stride];
            for (word, chunk) in words.iter_mut().zip(row.chunks_exact(WORD)) {
                *word = u64::from_le_bytes(chunk.try_into().expect("eight pixels"));
            }
        }
        self.words = moved;
        self.touch(0, self.rows.len());
    }

    /// What tells this frame from others: the same for the same pixels, everywhere.
    pub fn checksum(&mut self) -> u64 {
        let (from, to) = self.stale;
        for (y, row) in self.rows.iter_mut().enumerate().take(to).skip(from) {
            *row = hash(&self.words[y * self.stride..][..self.stride]);
        }
        self.stale = (0, 0);
        let seed = u64::from(self.width) << 16 | u64::from(self.height);
        self.rows.iter().fold(seed, |sum, row| mixed(sum ^ row))
    }
}

/// The offsets of a line's pixels across its longer direction: Bresenham's, begun anywhere.
#[derive(Debug)]
pub(crate) struct LineWalk {
    /// Twice the length along, or one where it is none.
    step: i64,
    /// Twice the length across, without its sign.
    rise: i64,
    sign: i32,
    offset: i32,
    error: i64,
}

impl LineWalk {
    pub(crate) fn new(along: i64, across: i64, skipped: i64) -> Self {
        let (step, rise) = ((2 * along).max(1), 2 * across.abs());
        // Halves round away from the start.
        let sum = i128::from(rise) * i128::from(skipped) + i128::from(along);
        let (offset, error) = (sum / i128::from(step), sum % i128::from(step));
        Self {
            step,
            rise,
            sign: if across < 0 { -1 } else { 1 },
            offset: i32::try_from(offset).unwrap_or(i32::MAX / 2),
            error: i64::try_from(error).unwrap_or(0),
        }
    }

    pub(crate) fn next_offset(&mut self) -> i32 {
        let offset = self.offset;
        self.error += self.rise;
        // At most once, since a line is longer along than across.
        if self.error >= self.step {
            self.error -= self.step;
            self.offset += 1;
        }
        self.sign * offset
    }
}

fn paint(word: &mut u64, mask: u64, color: u64) {
    *word = (*word & !mask) | (color & mask);
}

const fn mixed(value: u64) -> u64 {
    let product = value.wrapping_add(FACTOR).wrapping_mul(FACTOR);
    product ^ (product >> 29)
}

/// The hash of a row: four at once, since a multiplication waits for the one before.
fn hash(words: &[u64]) -> u64 {
    let mut lanes = [1, 2, 3, 4];
    let mut chunks = words.chunks_exact(4);
    for chunk in &mut chunks {
        for (lane, word) in lanes.iter_mut().zip(chunk) {
            *lane = mixed(*lane ^ word);
        }
    }
    for (lane, word) in lanes.iter_mut().zip(chunks.remainder()) {
        *lane = mixed(*lane ^ word);
    }
    lanes.iter().fold(0, |sum, lane| mixed(sum ^ lane))
}

/// Red, green and blue of each color.
pub const PALETTE: [[u8; 3]; 16] = [
    [0xff, 0xff, 0xff],
    [0x00, 0x00, 0x00],
    // The layers of a drawing of NMOS as Mead and Conway color them: metal, polysilicon, diffusion, implant.
    [0x2b, 0x6c, 0xd4],
    [0xd2, 0x2f, 0x2f],
    [0x2e, 0x8b, 0x3d],
    [0xd9, 0xa4, 0x00],
    [0x6a, 0x3d, 0x9a],
    [0x00, 0x8b, 0x8b],
    [0x80, 0x80, 0x80],
    [0xa6, 0xce, 0xe3],
    [0xfb, 0x9a, 0x99],
    [0xb2, 0xdf, 0x8a],
    [0xfd, 0xbf, 0x6f],
    [0xca, 0xb2, 0xd6],
    [0x40, 0x40, 0x40],
    [0xc0, 0xc0, 0xc0],
];

/// The file.
pub fn encode_png(frame: &DisplayFrame) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = Vec::new();
    header.extend(u32::from(frame.width()).to_be_bytes());
    header.extend(u32::from(frame.height()).to_be_bytes());
    // Eight bits a pixel, each an index of the palette.
    header.extend([8, 3, 0, 0, 0]);
    png_chunk(&mut file, *b"IHDR", &header);
    png_chunk(&mut file, *b"PLTE", PALETTE.as_flattened());
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    for y in 0..usize::from(frame.height()) {
        let row: Vec<u8> = std::iter::once(0).chain(frame.row(y)).collect();
        encoder.write_all(&row).expect("memory takes every byte");
    }
    png_chunk(&mut file, *b"IDAT", &encoder.finish().expect("memory takes every byte"));
    png_chunk(&mut file, *b"IEND", &[]);
    file
}

fn png_chunk(file: &mut Vec<u8>, kind: [u8; 4], data: &[u8]) {
    let len = u32::try_from(data.len()).expect("a frame is shorter than 4 GiB");
    file.extend(len.to_be_bytes());
    let mut sum = Crc::new();
    for part in [&kind[..], data] {
        sum.update(part);
        file.extend_from_slice(part);
    }
    file.extend(sum.sum().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(x0: i32, y0: i32, x1: i32, y1: i32) -> GridExtent {
        GridExtent { x0, y0, x1, y1 }
    }

    #[test]
    fn a_fill_sets_its_pixels_and_no_others() {
        for (x0, x1) in [(0, 1), (3, 7), (7, 9), (0, 37), (5, 30), (-9, 99), (36, 37)] {
            let mut frame = DisplayFrame::new(37, 5);
            frame.fill(&extent(x0, 1, x1, 3), 9, FillStipple::Solid as usize);
            for y in 0..5 {
                for x in 0..37 {
                    let is_inside = (x0..x1).contains(&i32::from(x)) && (1..3).contains(&y);
                    let color = frame.color(x, y).unwrap();
                    assert_eq!(color, if is_inside { 9 } else { 0 }, "{x} {y} of {x0}..{x1}");
                }
            }
        }
    }

    #[test]
    fn stipples_leave_pixels_between_as_they_were() {
        for stipple in 1..5 {
            let mut frame = DisplayFrame::new(16, 16);
            frame.fill(&frame.extent(), 1, 0);
            frame.fill(&frame.extent(), 2, stipple);
            let drawn: usize =
                (0..16).map(|y| frame.row(y).filter(|color| *color == 2).count()).sum();
            assert!((16..=128).contains(&drawn), "stipple {stipple} draws {drawn} of 256");
            assert!((0..16).all(|y| frame.row(y).all(|color| color != 0)));
        }
    }

    #[test]
    fn bits_are_drawn_within_the_clip_only() {
        for x in -9..40 {
            let mut frame = DisplayFrame::new(37, 1);
            let clip = extent(2, 0, 33, 1);
            frame.draw_bits(x, 0, 0b1010_0111, 5, &clip);
            for (at, color) in (0_i32..).zip(frame.row(0)) {
                let is_set = (0..8).contains(&(at - x)) && 0b1010_0111 >> (at - x) & 1 == 1;
                let is_drawn = is_set && (2..33).contains(&at);
                assert_eq!(color, if is_drawn { 5 } else { 0 }, "pixel {at}, bits from {x}");
            }
        }
    }

    #[test]
    fn a_checksum_tells_one_pixel_and_forgets_the_way_there() {
        let mut frame = DisplayFrame::new(400, 400);
        let empty = frame.checksum();
        frame.fill(&extent(399, 399, 400, 400), 1, 0);
        let one = frame.checksum();
        assert_ne!(one, empty);
        frame.fill(&extent(399, 399, 400, 400), 0, 0);
        assert_eq!(frame.checksum(), empty);
        let mut moved = DisplayFrame::new(400, 400);
        moved.fill(&extent(398, 399, 399, 400), 1, 0);
        assert_ne!(moved.checksum(), one);
    }

    #[test]
    fn a_shift_moves_every_pixel_that_stays() {
        let mut frame = DisplayFrame::new(21, 9);
        for y in 0..9 {
            for x in 0..21 {
                frame.fill(&extent(x, y, x + 1, y + 1), u8::try_from((x * 7 + y) % 16).unwrap(), 0);
            }
        }
        for (dx, dy) in [(3, -2), (-5, 1), (0, 0), (30, 0), (0, -9)] {
            let mut moved = frame.clone();
            moved.shift(dx, dy);
            for y in 0..9 {
                for x in 0..21 {
                    let from = |value: i32| u16::try_from(value).ok();
                    let source = from(x - dx).zip(from(y - dy));
                    let color = source.and_then(|(x, y)| frame.color(x, y)).unwrap_or(0);
                    let at = (u16::try_from(x).unwrap(), u16::try_from(y).unwrap());
                    assert_eq!(moved.color(at.0, at.1), Some(color), "{x} {y} by {dx} {dy}");
                }
            }
        }
    }
}
