//! One item of a symbol: twenty bytes, in the protocol as in memory.

use crate::geometry::{COORDINATE_MAX, CallPlacement, GridExtent};

/// Bytes of an item in the protocol.
pub const ITEM_LEN: usize = 20;
/// Width of a character, in units.
pub const GLYPH_WIDTH: i32 = 8;
/// Height of a character, in units.
pub const GLYPH_HEIGHT: i32 = 16;
/// Characters of a text item, at most.
pub const TEXT_MAX: u32 = 1_024;
/// Corners of a polygon, at most.
pub const CORNERS_MAX: u32 = 1_024;
/// Bytes of a corner of a polygon: x and y.
pub const CORNER_LEN: usize = 8;
/// Bytes before the rows of a bitmap: width and height.
pub const BITMAP_HEADER_LEN: usize = 4;

/// What an item is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ItemKind {
    /// Nothing: an item that was removed.
    #[default]
    Empty = 0,
    /// A line between two points, one pixel wide.
    Vector = 1,
    /// A filled rectangle.
    Rectangle = 2,
    /// A line of text.
    Text = 3,
    /// A filled polygon, by the even-odd rule.
    Polygon = 4,
    /// Another symbol, somewhere.
    Call = 5,
    /// Rows of pixels, a bit each: those that are set are drawn.
    Bitmap = 6,
}

impl ItemKind {
    /// The kind of a byte.
    const fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Empty,
            1 => Self::Vector,
            2 => Self::Rectangle,
            3 => Self::Text,
            4 => Self::Polygon,
            5 => Self::Call,
            6 => Self::Bitmap,
            _ => return None,
        })
    }
}

/// How areas are filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FillStipple {
    /// Every pixel.
    #[default]
    Solid = 0,
    /// Diagonals, rising.
    Rising = 1,
    /// Diagonals, falling.
    Falling = 2,
    /// Every other row.
    Rows = 3,
    /// Every fourth pixel.
    Dots = 4,
}

/// Fills other than [`FillStipple::Solid`].
pub const STIPPLES: [FillStipple; 4] =
    [FillStipple::Rising, FillStipple::Falling, FillStipple::Rows, FillStipple::Dots];

/// One item. What its numbers mean depends on its kind; constructors and `docs/display-protocol.md` say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DisplayItem {
    /// What it is.
    pub kind: ItemKind,
    /// Color in bits 0 to 3 and stipple in bits 4 to 6; of a call the orientation in bits 0 to 2.
    pub style: u8,
    /// Its numbers.
    pub values: [i32; 4],
}

/// Why twenty bytes are no item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ItemError {
    /// A kind that this version does not have.
    #[error("an item has an unknown kind")]
    Kind,
    /// Bits that have no meaning are set.
    #[error("an item has a style that does not exist")]
    Style,
    /// A coordinate is too far away.
    #[error("a coordinate of an item is more than 16,777,216 from zero")]
    Coordinate,
    /// Its text, corners or rows are not in the message's tail, or are too many.
    #[error("the text, the corners or the rows of an item are not in its message")]
    Tail,
}

impl DisplayItem {
    /// A line from one point to another.
    pub const fn vector(color: u8, from: (i32, i32), to: (i32, i32)) -> Self {
        Self { kind: ItemKind::Vector, style: color & 15, values: [from.0, from.1, to.0, to.1] }
    }

    /// A filled rectangle between two corners.
    pub const fn rectangle(
        color: u8,
        stipple: FillStipple,
        from: (i32, i32),
        to: (i32, i32),
    ) -> Self {
        let style = (color & 15) | ((stipple as u8) << 4);
        Self { kind: ItemKind::Rectangle, style, values: [from.0, from.1, to.0, to.1] }
    }

    /// Text with its upper left corner at a point; `tail` is where its characters are.
    pub const fn text(color: u8, at: (i32, i32), tail: TailRange) -> Self {
        Self {
            kind: ItemKind::Text,
            style: color & 15,
            values: [at.0, at.1, tail.offset, tail.len],
        }
    }

    /// A filled polygon; `tail` is where its corners are, each two numbers of four bytes.
    pub const fn polygon(color: u8, stipple: FillStipple, tail: TailRange) -> Self {
        let style = (color & 15) | ((stipple as u8) << 4);
        Self { kind: ItemKind::Polygon, style, values: [0, 0, tail.offset, tail.len] }
    }

    /// Pixels with the upper left one at a point; `tail` is where [`BitmapRows`] are.
    pub const fn bitmap(color: u8, at: (i32, i32), tail: TailRange) -> Self {
        Self {
            kind: ItemKind::Bitmap,
            style: color & 15,
            values: [at.0, at.1, tail.offset, tail.len],
        }
    }

    /// Another symbol, turned by an orientation as [`CallPlacement::new`] has it, then moved.
    pub const fn call(symbol: i32, orientation: u8, offset: (i32, i32)) -> Self {
        Self {
            kind: ItemKind::Call,
            style: orientation & 7,
            values: [offset.0, offset.1, symbol, 0],
        }
    }

    /// Its color: an index.
    pub const fn color(&self) -> u8 {
        self.style & 15
    }

    /// Index of its stipple.
    pub(crate) const fn stipple(&self) -> usize {
        (self.style >> 4) as usize
    }

    /// Where its text, corners or rows are.
    pub(crate) const fn tail(&self) -> TailRange {
        TailRange { offset: self.values[2], len: self.values[3] }
    }

    /// Whether it has bytes in the tail.
    pub(crate) const fn has_tail(&self) -> bool {
        matches!(self.kind, ItemKind::Text | ItemKind::Polygon | ItemKind::Bitmap)
    }

    /// Where it puts the symbol that it calls.
    pub(crate) const fn placement(&self) -> CallPlacement {
        CallPlacement::new(self.style, self.values[0], self.values[1])
    }

    /// The symbol that it calls, where it is a call.
    pub fn called(&self) -> Option<u32> {
        (self.kind == ItemKind::Call).then(|| u32::try_from(self.values[2]).unwrap_or(u32::MAX))
    }

    /// Reads an item.
    ///
    /// # Errors
    /// It is none, or refers to bytes that `tail` does not have.
    pub fn decode(bytes: &[u8; ITEM_LEN], tail: &[u8]) -> Result<Self, ItemError> {
        let kind = ItemKind::of(bytes[0]).ok_or(ItemError::Kind)?;
        let (style, reserved) = (bytes[1], [bytes[2], bytes[3]]);
        let style_max = if kind == ItemKind::Call { 7 } else { 0x4f };
        if style > style_max || reserved != [0, 0] {
            return Err(ItemError::Style);
        }
        let value = |at: usize| {
            i32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let item = Self { kind, style, values: [value(4), value(8), value(12), value(16)] };
        let coordinates = if kind as u8 <= ItemKind::Rectangle as u8 { 4 } else { 2 };
        let is_near = |value: &i32| (-COORDINATE_MAX..=COORDINATE_MAX).contains(value);
        if !item.values[..coordinates].iter().all(is_near) {
            return Err(ItemError::Coordinate);
        }
        if item.has_tail() {
            item.check_tail(tail)?;
        }
        Ok(item)
    }

    fn check_tail(&self, tail: &[u8]) -> Result<(), ItemError> {
        let bytes = self.tail().of(tail).ok_or(ItemError::Tail)?;
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if self.kind == ItemKind::Text {
            return if len <= TEXT_MAX { Ok(()) } else { Err(ItemError::Tail) };
        }
        if self.kind == ItemKind::Bitmap {
            return BitmapRows::new(bytes).map(drop).ok_or(ItemError::Tail);
        }
        let is_near = |(x, y): (i32, i32)| {
            [x, y].iter().all(|value| (-COORDINATE_MAX..=COORDINATE_MAX).contains(value))
        };
        if bytes.len() % CORNER_LEN != 0 || bytes.len() / CORNER_LEN > CORNERS_MAX as usize {
            Err(ItemError::Tail)
        } else if corners(bytes).all(is_near) {
            Ok(())
        } else {
            Err(ItemError::Coordinate)
        }
    }

    /// Its twenty bytes.
    pub fn encode(&self) -> [u8; ITEM_LEN] {
        let mut bytes = [0; ITEM_LEN];
        (bytes[0], bytes[1]) = (self.kind as u8, self.style);
        for (place, value) in bytes[4..].chunks_exact_mut(4).zip(self.values) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    /// What it covers, in units of its symbol; of a call, nothing of its own.
    pub fn extent(&self, tail: &[u8]) -> GridExtent {
        let [x0, y0, x1, y1] = self.values;
        match self.kind {
            ItemKind::Empty | ItemKind::Call => GridExtent::EMPTY,
            ItemKind::Rectangle => GridExtent::between((x0, y0), (x1, y1)),
            ItemKind::Vector => {
                let extent = GridExtent::between((x0, y0), (x1, y1));
                GridExtent { x1: extent.x1 + 1, y1: extent.y1 + 1, ..extent }
            }
            ItemKind::Text => {
                let width = self.tail().len * GLYPH_WIDTH;
                GridExtent { x0, y0, x1: x0 + width, y1: y0 + GLYPH_HEIGHT }
            }
            ItemKind::Bitmap => {
                let rows = self.tail().of(tail).and_then(BitmapRows::new);
                rows.map_or(GridExtent::EMPTY, |rows| {
                    let (width, height) = rows.size();
                    GridExtent { x0, y0, x1: x0 + width, y1: y0 + height }
                })
            }
            ItemKind::Polygon => {
                let bytes = self.tail().of(tail).unwrap_or_default();
                corners(bytes).fold(GridExtent::EMPTY, |extent, (x, y)| {
                    extent.union(&GridExtent { x0: x, y0: y, x1: x + 1, y1: y + 1 })
                })
            }
        }
    }
}

/// Bytes of a message's or a symbol's tail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TailRange {
    /// The first.
    pub offset: i32,
    /// How many.
    pub len: i32,
}

impl TailRange {
    /// These bytes, where the tail has them.
    pub(crate) fn of(self, tail: &[u8]) -> Option<&[u8]> {
        let offset = usize::try_from(self.offset).ok()?;
        let len = usize::try_from(self.len).ok()?;
        tail.get(offset..offset.checked_add(len)?)
    }
}

/// The pixels of a bitmap: width and height, two bytes each, then row after row from the top, each of whole bytes, its leftmost pixel in
/// bit 0 of the first. Bits that a row does not need are 0.
#[derive(Clone, Copy, Debug)]
pub struct BitmapRows<'a> {
    width: u16,
    height: u16,
    rows: &'a [u8],
}

impl<'a> BitmapRows<'a> {
    /// Reads them; none where there are other bytes than these.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let (header, rows) = bytes.split_first_chunk::<BITMAP_HEADER_LEN>()?;
        let [width, height] =
            [[header[0], header[1]], [header[2], header[3]]].map(u16::from_le_bytes);
        let stride = usize::from(width).div_ceil(8);
        let is_whole = width > 0 && height > 0 && rows.len() == stride * usize::from(height);
        let unused = 0xff_u8.checked_shl(u32::from(width) % 8).filter(|_| width % 8 > 0);
        let is_clean = |row: &[u8]| row[stride - 1] & unused.unwrap_or(0) == 0;
        let is_bitmap = is_whole && rows.chunks_exact(stride).all(is_clean);
        is_bitmap.then_some(Self { width, height, rows })
    }

    /// Appends a bitmap of this size to `out`; `is_set` tells which pixels are.
    pub fn encode(
        (width, height): (u16, u16),
        is_set: impl Fn(u16, u16) -> bool,
        out: &mut Vec<u8>,
    ) {
        out.extend(width.to_le_bytes());
        out.extend(height.to_le_bytes());
        for y in 0..height {
            for left in (0..width).step_by(8) {
                let pixels = left..width.min(left.saturating_add(8));
                out.push(pixels.fold(0, |bits, x| bits | u8::from(is_set(x, y)) << (x - left)));
            }
        }
    }

    /// Width and height.
    pub(crate) fn size(&self) -> (i32, i32) {
        (self.width.into(), self.height.into())
    }

    /// The bytes of a row.
    pub(crate) fn row(&self, y: i32) -> &'a [u8] {
        let stride = usize::from(self.width).div_ceil(8);
        let from = usize::try_from(y).map_or(self.rows.len(), |y| y * stride);
        self.rows.get(from..from + stride).unwrap_or_default()
    }

    /// Whether a pixel is set.
    pub(crate) fn has_dot(&self, (x, y): (i32, i32)) -> bool {
        let byte = usize::try_from(x / 8).ok().and_then(|at| self.row(y).get(at));
        byte.is_some_and(|bits| bits >> (x % 8) & 1 == 1)
    }
}

/// The corners of a polygon.
pub(crate) fn corners(bytes: &[u8]) -> impl Iterator<Item = (i32, i32)> + Clone + '_ {
    let number = |bytes: &[u8]| i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    bytes.chunks_exact(CORNER_LEN).map(move |corner| (number(corner), number(&corner[4..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_twenty_bytes_in_memory_too() {
        assert_eq!(size_of::<DisplayItem>(), ITEM_LEN);
    }

    #[test]
    fn items_survive_encoding() {
        let range = TailRange { offset: 0, len: 8 };
        for item in [
            DisplayItem::default(),
            DisplayItem::vector(3, (-5, 7), (COORDINATE_MAX, 0)),
            DisplayItem::rectangle(1, FillStipple::Dots, (1, 2), (3, 4)),
            DisplayItem::text(2, (9, 9), range),
            DisplayItem::polygon(2, FillStipple::Rows, range),
            DisplayItem::call(17, 5, (100, -100)),
        ] {
            assert_eq!(DisplayItem::decode(&item.encode(), &[0; 8]), Ok(item));
        }
        let item = DisplayItem::bitmap(4, (1, 2), range);
        let mut tail = Vec::new();
        BitmapRows::encode((10, 2), |x, y| x > y, &mut tail);
        assert_eq!(tail, [10, 0, 2, 0, 0xfe, 3, 0xfc, 3]);
        assert_eq!(DisplayItem::decode(&item.encode(), &tail), Ok(item));
        for (at, wrong) in [(0, 17), (2, 3), (2, 0), (5, 7)] {
            let mut tail = tail.clone();
            tail[at] = wrong;
            assert_eq!(DisplayItem::decode(&item.encode(), &tail), Err(ItemError::Tail), "{at}");
        }
    }

    #[test]
    fn bad_items_are_refused_by_their_fault() {
        let far = DisplayItem::vector(0, (COORDINATE_MAX + 1, 0), (0, 0));
        assert_eq!(DisplayItem::decode(&far.encode(), &[]), Err(ItemError::Coordinate));
        let text = DisplayItem::text(0, (0, 0), TailRange { offset: 4, len: 8 });
        assert_eq!(DisplayItem::decode(&text.encode(), &[0; 8]), Err(ItemError::Tail));
        let negative = DisplayItem::text(0, (0, 0), TailRange { offset: -1, len: 1 });
        assert_eq!(DisplayItem::decode(&negative.encode(), &[0; 8]), Err(ItemError::Tail));
        let mut unknown = DisplayItem::default().encode();
        unknown[0] = 7;
        assert_eq!(DisplayItem::decode(&unknown, &[]), Err(ItemError::Kind));
        unknown[..2].copy_from_slice(&[2, 0x5f]);
        assert_eq!(DisplayItem::decode(&unknown, &[]), Err(ItemError::Style));
    }
}
