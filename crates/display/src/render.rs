//! Draws a symbol, and what it calls, on a frame: whole numbers only, clipped to the pixel.
//!
//! A pixel's color depends on the scene and the view, never on the clip: what is drawn again within a part of a frame is the same.
//!
//! Text is drawn with a built-in font: a dot matrix of 5 by 7, each row twice, in a cell of 8 by 16.

use crate::frame::{DisplayFrame, LineWalk};
use crate::geometry::{CallPlacement, GridExtent, SCALE_ONE, ViewPort};
use crate::item::{
    BitmapRows, CORNER_LEN, DisplayItem, GLYPH_HEIGHT, GLYPH_WIDTH, ItemKind, corners,
};
use crate::scene::{DisplayScene, DisplaySymbol};

/// Drawing would have taken more than the display allows for one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the drawing has more to draw than the display's limit for one frame; show less of it at once"
)]
pub struct OutOfBudget;

/// What is drawn, and how far.
#[derive(Debug)]
pub(crate) struct ScenePainter<'a> {
    pub(crate) scene: &'a DisplayScene,
    pub(crate) view: &'a ViewPort,
    pub(crate) frame: &'a mut DisplayFrame,
    /// Pixels that may change, within the frame.
    pub(crate) clip: GridExtent,
    /// Items and words that may still be drawn.
    pub(crate) budget: u64,
    /// Items drawn.
    pub(crate) items: u64,
    /// How lines are drawn.
    pub(crate) lines: LineCoding,
}

/// How the inner loop of lines is written: the pixels are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineCoding {
    /// Words and their masks, by addition only, where a line needs no clipping.
    #[default]
    Tuned,
    /// A pixel at a time, each clipped and addressed anew.
    Plain,
}

impl ScenePainter<'_> {
    /// Draws the items of a symbol from one of them on.
    ///
    /// # Errors
    /// The budget does not suffice; some are drawn.
    pub(crate) fn symbol(
        &mut self,
        symbol: &DisplaySymbol,
        placement: &CallPlacement,
        from: usize,
    ) -> Result<(), OutOfBudget> {
        let tail = symbol.tail();
        for item in symbol.items().get(from..).unwrap_or_default() {
            self.charge(1)?;
            match item.kind {
                ItemKind::Empty => continue,
                ItemKind::Rectangle => self.rectangle(item, placement)?,
                ItemKind::Vector => self.vector(item, placement)?,
                ItemKind::Text => self.text(item, tail, placement)?,
                ItemKind::Polygon => self.polygon(item, tail, placement)?,
                ItemKind::Bitmap => self.bitmap(item, tail, placement)?,
                ItemKind::Call => {
                    self.call(item, placement)?;
                    continue;
                }
            }
            self.items += 1;
        }
        Ok(())
    }

    fn call(&mut self, item: &DisplayItem, placement: &CallPlacement) -> Result<(), OutOfBudget> {
        let Some(symbol) = item.called().and_then(|id| self.scene.symbol(id)) else {
            return Ok(());
        };
        let placement = placement.of(&item.placement());
        let shown = self.view.pixels(&placement.extent(&symbol.extent()));
        if shown.meets(&self.clip) { self.symbol(symbol, &placement, 0) } else { Ok(()) }
    }

    fn charge(&mut self, cost: u64) -> Result<(), OutOfBudget> {
        self.budget = self.budget.checked_sub(cost).ok_or(OutOfBudget)?;
        Ok(())
    }

    /// The pixels of a filled extent; an area that is not empty has one at least.
    fn area(&self, extent: &GridExtent) -> GridExtent {
        let (x0, y0) = (self.view.column(extent.x0), self.view.row(extent.y0));
        let far = |from: i32, to: i32, is_wide: bool| to.max(from + i32::from(is_wide));
        GridExtent {
            x0,
            y0,
            x1: far(x0, self.view.column(extent.x1), extent.x1 > extent.x0),
            y1: far(y0, self.view.row(extent.y1), extent.y1 > extent.y0),
        }
    }

    fn rectangle(
        &mut self,
        item: &DisplayItem,
        placement: &CallPlacement,
    ) -> Result<(), OutOfBudget> {
        let [x0, y0, x1, y1] = item.values;
        let extent = GridExtent::between(placement.point(x0, y0), placement.point(x1, y1));
        let pixels = self.area(&extent).intersection(&self.clip);
        let words = self.frame.fill(&pixels, item.color(), item.stipple());
        self.charge(words)
    }

    /// A line: along its longer direction one pixel each, the nearest to the exact line.
    fn vector(&mut self, item: &DisplayItem, placement: &CallPlacement) -> Result<(), OutOfBudget> {
        let [x0, y0, x1, y1] = item.values;
        let pixel = |(x, y): (i32, i32)| (self.view.column(x), self.view.row(y));
        let (one, other) = (pixel(placement.point(x0, y0)), pixel(placement.point(x1, y1)));
        // From the smaller end, so that a line is the same in both directions.
        let (from, to) = (one.min(other), one.max(other));
        let clip = self.clip;
        let pixels = GridExtent::between(from, to);
        let pixels = GridExtent { x1: pixels.x1 + 1, y1: pixels.y1 + 1, ..pixels };
        let inside = pixels.intersection(&clip);
        if inside.is_empty() {
            return Ok(());
        }
        self.frame.touch_rows(&inside);
        let (dx, dy) = (i64::from(to.0) - i64::from(from.0), i64::from(to.1) - i64::from(from.1));
        let color = item.color();
        let is_whole = inside == pixels && self.lines == LineCoding::Tuned;
        if is_whole {
            self.whole_line((from, to), (dx, dy), color);
        } else if dx >= dy.abs() {
            let mut line = LineWalk::new(dx, dy, i64::from(inside.x0) - i64::from(from.0));
            for x in inside.x0..inside.x1 {
                let y = from.1 + line.next_offset();
                if (clip.y0..clip.y1).contains(&y) {
                    self.frame.set(x, y, color);
                }
            }
        } else {
            let (top, bottom) = if from.1 <= to.1 { (from, to) } else { (to, from) };
            let dx = i64::from(bottom.0) - i64::from(top.0);
            let mut line = LineWalk::new(dy.abs(), dx, i64::from(inside.y0) - i64::from(top.1));
            for y in inside.y0..inside.y1 {
                let x = top.0 + line.next_offset();
                if (clip.x0..clip.x1).contains(&x) {
                    self.frame.set(x, y, color);
                }
            }
        }
        self.charge(u64::from((inside.x1 - inside.x0).max(inside.y1 - inside.y0).unsigned_abs()))
    }

    /// One that needs no clipping.
    fn whole_line(
        &mut self,
        (from, to): ((i32, i32), (i32, i32)),
        (dx, dy): (i64, i64),
        color: u8,
    ) {
        let at = |value: i32| usize::try_from(value).expect("within the frame");
        let count = |along: i64| usize::try_from(along).expect("a length") + 1;
        let is_flat = dx >= dy.abs();
        let (top, bottom) = if is_flat || from.1 <= to.1 { (from, to) } else { (to, from) };
        let start = (at(top.0), at(top.1));
        if is_flat {
            self.frame.draw_flat(start, count(dx), &LineWalk::new(dx, dy, 0), color);
        } else {
            let across = i64::from(bottom.0) - i64::from(top.0);
            let line = LineWalk::new(dy.abs(), across, 0);
            self.frame.draw_steep(start, count(dy.abs()), &line, color);
        }
    }

    fn text(
        &mut self,
        item: &DisplayItem,
        tail: &[u8],
        placement: &CallPlacement,
    ) -> Result<(), OutOfBudget> {
        let extent = placement.extent(&item.extent(tail));
        let text = item.tail().of(tail).unwrap_or_default();
        let area = self.area(&extent);
        let inside = area.intersection(&self.clip);
        if inside.is_empty() {
            return Ok(());
        }
        if self.view.scale == SCALE_ONE && placement.is_upright() {
            let first = usize::try_from((inside.x0 - area.x0) / GLYPH_WIDTH).unwrap_or(0);
            let last = usize::try_from((inside.x1 - area.x0 - 1) / GLYPH_WIDTH).unwrap_or(0);
            let shown = text.get(first..=last.min(text.len() - 1)).unwrap_or_default();
            for y in inside.y0..inside.y1 {
                let mut x = area.x0 + GLYPH_WIDTH * i32::try_from(first).unwrap_or(0);
                for character in shown {
                    let bits = glyph_row(*character, y - area.y0);
                    self.frame.draw_bits(x, y, bits, item.color(), &self.clip);
                    x += GLYPH_WIDTH;
                }
            }
            return self.charge(shown.len() as u64 * u64::from(GLYPH_HEIGHT.unsigned_abs()));
        }
        let size = (GLYPH_WIDTH * item.values[3], GLYPH_HEIGHT);
        self.dots((&extent, size), placement, item.color(), |unit| has_dot(text, unit))
    }

    fn bitmap(
        &mut self,
        item: &DisplayItem,
        tail: &[u8],
        placement: &CallPlacement,
    ) -> Result<(), OutOfBudget> {
        let Some(rows) = item.tail().of(tail).and_then(BitmapRows::new) else { return Ok(()) };
        let extent = placement.extent(&item.extent(tail));
        let area = self.area(&extent);
        let inside = area.intersection(&self.clip);
        if inside.is_empty() {
            return Ok(());
        }
        if self.view.scale == SCALE_ONE && placement.is_upright() {
            for y in inside.y0..inside.y1 {
                let row = rows.row(y - area.y0);
                self.charge(row.len() as u64)?;
                for (x, bits) in (area.x0..).step_by(8).zip(row) {
                    self.frame.draw_bits(x, y, *bits, item.color(), &self.clip);
                }
            }
            return Ok(());
        }
        self.dots((&extent, rows.size()), placement, item.color(), |unit| rows.has_dot(unit))
    }

    /// The units of an extent that have dots, turned and scaled; upright they have this size.
    fn dots(
        &mut self,
        (extent, size): (&GridExtent, (i32, i32)),
        placement: &CallPlacement,
        color: u8,
        has_dot: impl Fn((i32, i32)) -> bool,
    ) -> Result<(), OutOfBudget> {
        let area = self.area(extent);
        let inside = area.intersection(&self.clip);
        self.frame.touch_rows(&inside);
        let units = (extent.x1 - extent.x0, extent.y1 - extent.y0);
        let upright = GridExtent { x0: 0, y0: 0, x1: size.0, y1: size.1 };
        let size = (area.x1 - area.x0, area.y1 - area.y0);
        let turned = CallPlacement::new(item_orientation(placement), 0, 0);
        let corner = turned.extent(&upright);
        let unit = |pixel: i32, pixels: i32, units: i32| {
            i32::try_from(i64::from(pixel) * i64::from(units) / i64::from(pixels)).unwrap_or(0)
        };
        for y in inside.y0..inside.y1 {
            for x in inside.x0..inside.x1 {
                let unit_x = corner.x0 + unit(x - area.x0, size.0, units.0);
                let unit_y = corner.y0 + unit(y - area.y0, size.1, units.1);
                if has_dot(turned.source(unit_x, unit_y)) {
                    self.frame.set(x, y, color);
                }
            }
        }
        let pixels = i64::from(inside.x1 - inside.x0) * i64::from(inside.y1 - inside.y0);
        self.charge(pixels.unsigned_abs())
    }

    /// The even-odd rule at the middles of pixels.
    fn polygon(
        &mut self,
        item: &DisplayItem,
        tail: &[u8],
        placement: &CallPlacement,
    ) -> Result<(), OutOfBudget> {
        let bytes = item.tail().of(tail).unwrap_or_default();
        let shown = self.view.pixels(&placement.extent(&item.extent(tail)));
        let inside = shown.intersection(&self.clip);
        if inside.is_empty() {
            return Ok(());
        }
        let points: Vec<(i64, i64)> = corners(bytes)
            .map(|(x, y)| placement.point(x, y))
            .map(|(x, y)| (i64::from(self.view.column(x)), i64::from(self.view.row(y))))
            .collect();
        let edges = bytes.len() / CORNER_LEN;
        let mut crossings: Vec<i32> = Vec::with_capacity(edges);
        for y in inside.y0..inside.y1 {
            self.charge(edges as u64)?;
            crossings.clear();
            // Twice the height of the row's middle.
            let middle = 2 * i64::from(y) + 1;
            for (index, from) in points.iter().enumerate() {
                let to = points[(index + 1) % points.len()];
                let (above, below) = if from.1 <= to.1 { (*from, to) } else { (to, *from) };
                if 2 * above.1 < middle && middle < 2 * below.1 {
                    crossings.push(crossing(above, below, middle));
                }
            }
            crossings.sort_unstable();
            for pair in crossings.chunks_exact(2) {
                let span = GridExtent { x0: pair[0], y0: y, x1: pair[1], y1: y + 1 };
                let words =
                    self.frame.fill(&span.intersection(&self.clip), item.color(), item.stipple());
                self.charge(words)?;
            }
        }
        Ok(())
    }
}

/// The first pixel whose middle is at or right of where an edge crosses the middle of a row.
fn crossing(above: (i64, i64), below: (i64, i64), middle: i64) -> i32 {
    let (dx, dy) = (below.0 - above.0, below.1 - above.1);
    // x = above.0 + dx (middle/2 − above.1)/dy; the first p with p + 1/2 ≥ x.
    let across = i128::from(dx) * i128::from(middle - 2 * above.1) - i128::from(dy);
    let divisor = i128::from(2 * dy);
    let pixel = i128::from(above.0)
        + across.div_euclid(divisor)
        + i128::from(across.rem_euclid(divisor) != 0);
    let far = i128::from(i32::MAX / 2);
    i32::try_from(pixel.clamp(-far, far)).expect("within the bounds just set")
}

/// The orientation of a placement: the one of the eight that turns alike.
fn item_orientation(placement: &CallPlacement) -> u8 {
    let turns = |orientation: &u8| {
        let turned = CallPlacement::new(*orientation, 0, 0);
        let moved = |x, y| {
            let ((ax, ay), (bx, by)) = (placement.point(x, y), placement.point(0, 0));
            (ax - bx, ay - by)
        };
        turned.point(1, 0) == moved(1, 0) && turned.point(0, 1) == moved(0, 1)
    };
    (0..8).find(turns).unwrap_or(0)
}

/// Character after character from the space, five columns each, the uppermost dot in bit 0.
const COLUMNS: &[u8; 95 * 5] = b"\
\x00\x00\x00\x00\x00\x00\x00\x5f\x00\x00\x00\x07\x00\x07\x00\x14\x7f\x14\x7f\x14\x24\x2a\x7f\x2a\x12\
\x23\x13\x08\x64\x62\x36\x49\x55\x22\x50\x00\x05\x03\x00\x00\x00\x1c\x22\x41\x00\x00\x41\x22\x1c\x00\
\x14\x08\x3e\x08\x14\x08\x08\x3e\x08\x08\x00\x50\x30\x00\x00\x08\x08\x08\x08\x08\x00\x60\x60\x00\x00\
\x20\x10\x08\x04\x02\x3e\x51\x49\x45\x3e\x00\x42\x7f\x40\x00\x42\x61\x51\x49\x46\x21\x41\x45\x4b\x31\
\x18\x14\x12\x7f\x10\x27\x45\x45\x45\x39\x3c\x4a\x49\x49\x30\x01\x71\x09\x05\x03\x36\x49\x49\x49\x36\
\x06\x49\x49\x29\x1e\x00\x36\x36\x00\x00\x00\x56\x36\x00\x00\x08\x14\x22\x41\x00\x14\x14\x14\x14\x14\
\x00\x41\x22\x14\x08\x02\x01\x51\x09\x06\x32\x49\x79\x41\x3e\x7e\x11\x11\x11\x7e\x7f\x49\x49\x49\x36\
\x3e\x41\x41\x41\x22\x7f\x41\x41\x22\x1c\x7f\x49\x49\x49\x41\x7f\x09\x09\x09\x01\x3e\x41\x49\x49\x7a\
\x7f\x08\x08\x08\x7f\x00\x41\x7f\x41\x00\x20\x40\x41\x3f\x01\x7f\x08\x14\x22\x41\x7f\x40\x40\x40\x40\
\x7f\x02\x0c\x02\x7f\x7f\x04\x08\x10\x7f\x3e\x41\x41\x41\x3e\x7f\x09\x09\x09\x06\x3e\x41\x51\x21\x5e\
\x7f\x09\x19\x29\x46\x46\x49\x49\x49\x31\x01\x01\x7f\x01\x01\x3f\x40\x40\x40\x3f\x1f\x20\x40\x20\x1f\
\x3f\x40\x38\x40\x3f\x63\x14\x08\x14\x63\x07\x08\x70\x08\x07\x61\x51\x49\x45\x43\x00\x7f\x41\x41\x00\
\x02\x04\x08\x10\x20\x00\x41\x41\x7f\x00\x04\x02\x01\x02\x04\x40\x40\x40\x40\x40\x00\x01\x02\x04\x00\
\x20\x54\x54\x54\x78\x7f\x48\x44\x44\x38\x38\x44\x44\x44\x20\x38\x44\x44\x48\x7f\x38\x54\x54\x54\x18\
\x08\x7e\x09\x01\x02\x0c\x52\x52\x52\x3e\x7f\x08\x04\x04\x78\x00\x44\x7d\x40\x00\x20\x40\x44\x3d\x00\
\x7f\x10\x28\x44\x00\x00\x41\x7f\x40\x00\x7c\x04\x18\x04\x78\x7c\x08\x04\x04\x78\x38\x44\x44\x44\x38\
\x7c\x14\x14\x14\x08\x08\x14\x14\x18\x7c\x7c\x08\x04\x04\x08\x48\x54\x54\x54\x20\x04\x3f\x44\x40\x20\
\x3c\x40\x40\x20\x7c\x1c\x20\x40\x20\x1c\x3c\x40\x30\x40\x3c\x44\x28\x10\x28\x44\x0c\x50\x50\x50\x3c\
\x44\x64\x54\x4c\x44\x00\x08\x36\x41\x00\x00\x00\x7f\x00\x00\x00\x41\x36\x08\x00\x08\x04\x08\x10\x08";

/// Rows of dots above and left of a character's.
const MARGIN: i32 = 1;

/// The dots of a row of a character's cell, the leftmost in bit 0. What the font lacks is a frame.
pub(crate) fn glyph_row(character: u8, row: i32) -> u8 {
    let inner = row - MARGIN;
    if !(0..GLYPH_HEIGHT - 2 * MARGIN).contains(&inner) {
        return 0;
    }
    let dot = u32::try_from(inner / 2).unwrap_or(0);
    let index = usize::from(character.wrapping_sub(b' '));
    let columns = COLUMNS.get(index * 5..index * 5 + 5).unwrap_or(&[0x7f, 0x41, 0x41, 0x41, 0x7f]);
    let mut dots = 0;
    for (column, dots_of_column) in columns.iter().enumerate() {
        dots |= ((dots_of_column >> dot) & 1) << column;
    }
    dots << MARGIN
}

/// Whether a unit of a line of text has a dot.
pub(crate) fn has_dot(text: &[u8], (x, y): (i32, i32)) -> bool {
    let character = usize::try_from(x / GLYPH_WIDTH).ok().and_then(|index| text.get(index));
    character.is_some_and(|character| glyph_row(*character, y) >> (x % GLYPH_WIDTH) & 1 == 1)
}
