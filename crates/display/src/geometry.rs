//! Extents, placements and views: whole numbers throughout.
//!
//! A coordinate of an item is at most [`COORDINATE_MAX`] from zero and calls are nested at most [`DEPTH_MAX`] deep, so that no sum of
//! offsets leaves an `i32`.

/// Largest coordinate of an item, either way from zero.
pub const COORDINATE_MAX: i32 = 1 << 24;
/// Calls within calls, at most.
pub const DEPTH_MAX: u32 = 32;
/// A view's scale at which a unit of a scene is a pixel.
pub const SCALE_ONE: u32 = 1 << 16;
/// Largest scale of a view: a unit is 256 pixels.
pub const SCALE_MAX: u32 = 1 << 24;

/// The units or pixels from `x0` and `y0` up to, and without, `x1` and `y1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridExtent {
    /// Left edge.
    pub x0: i32,
    /// Upper edge.
    pub y0: i32,
    /// Right edge.
    pub x1: i32,
    /// Lower edge.
    pub y1: i32,
}

impl GridExtent {
    /// Nothing: its union with another is the other.
    pub const EMPTY: Self = Self { x0: i32::MAX, y0: i32::MAX, x1: i32::MIN, y1: i32::MIN };

    /// Between two corners.
    pub fn between((ax, ay): (i32, i32), (bx, by): (i32, i32)) -> Self {
        Self { x0: ax.min(bx), y0: ay.min(by), x1: ax.max(bx), y1: ay.max(by) }
    }

    /// Whether it has no pixel.
    pub const fn is_empty(&self) -> bool {
        self.x0 >= self.x1 || self.y0 >= self.y1
    }

    /// The least that holds both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self {
            x0: self.x0.min(other.x0),
            y0: self.y0.min(other.y0),
            x1: self.x1.max(other.x1),
            y1: self.y1.max(other.y1),
        }
    }

    /// Their intersection.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self {
            x0: self.x0.max(other.x0),
            y0: self.y0.max(other.y0),
            x1: self.x1.min(other.x1),
            y1: self.y1.min(other.y1),
        }
    }

    /// Whether both have a pixel.
    pub fn meets(&self, other: &Self) -> bool {
        !self.intersection(other).is_empty()
    }
}

/// One of the eight ways to lay a square on itself, and an offset: where a call puts a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallPlacement {
    xx: i32,
    xy: i32,
    yx: i32,
    yy: i32,
    dx: i32,
    dy: i32,
}

impl CallPlacement {
    /// Where everything is already.
    pub const HERE: Self = Self { xx: 1, xy: 0, yx: 0, yy: 1, dx: 0, dy: 0 };

    /// An orientation, then an offset. Bits 0 and 1 of `orientation` are quarter turns, bit 2 mirrors x before them.
    pub const fn new(orientation: u8, dx: i32, dy: i32) -> Self {
        let mirror = if orientation & 4 == 0 { 1 } else { -1 };
        let (xx, xy, yx, yy) = match orientation & 3 {
            0 => (mirror, 0, 0, 1),
            1 => (0, -1, mirror, 0),
            2 => (-mirror, 0, 0, -1),
            _ => (0, 1, -mirror, 0),
        };
        Self { xx, xy, yx, yy, dx, dy }
    }

    /// Where a point comes to lie.
    pub const fn point(&self, x: i32, y: i32) -> (i32, i32) {
        (self.xx * x + self.xy * y + self.dx, self.yx * x + self.yy * y + self.dy)
    }

    /// Where an extent comes to lie; nothing stays nothing.
    #[must_use]
    pub fn extent(&self, extent: &GridExtent) -> GridExtent {
        if extent.is_empty() {
            return GridExtent::EMPTY;
        }
        GridExtent::between(self.point(extent.x0, extent.y0), self.point(extent.x1, extent.y1))
    }

    /// The placement of what `inner` places within this.
    #[must_use]
    pub const fn of(&self, inner: &Self) -> Self {
        let (dx, dy) = self.point(inner.dx, inner.dy);
        Self {
            xx: self.xx * inner.xx + self.xy * inner.yx,
            xy: self.xx * inner.xy + self.xy * inner.yy,
            yx: self.yx * inner.xx + self.yy * inner.yx,
            yy: self.yx * inner.xy + self.yy * inner.yy,
            dx,
            dy,
        }
    }

    /// Whether it only moves.
    pub const fn is_upright(&self) -> bool {
        self.xx == 1 && self.yy == 1
    }

    /// The unit square that its orientation lays on this one.
    pub(crate) const fn source(&self, x: i32, y: i32) -> (i32, i32) {
        // Twice the middle of the square; the transpose of an orthogonal matrix is its inverse.
        let (x, y) = (2 * x + 1, 2 * y + 1);
        ((self.xx * x + self.yx * y - 1) / 2, (self.xy * x + self.yy * y - 1) / 2)
    }
}

/// What part of a symbol a frame shows, and how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewPort {
    /// Units at the left edge of the frame.
    pub x: i32,
    /// Units at its upper edge.
    pub y: i32,
    /// Pixels a unit, in 65,536ths.
    pub scale: u32,
}

impl ViewPort {
    /// The pixel of a horizontal coordinate.
    pub fn column(&self, x: i32) -> i32 {
        scaled(i64::from(x) - i64::from(self.x), self.scale)
    }

    /// The pixel of a vertical coordinate.
    pub fn row(&self, y: i32) -> i32 {
        scaled(i64::from(y) - i64::from(self.y), self.scale)
    }

    /// Every pixel that something within an extent of units may touch.
    pub fn pixels(&self, extent: &GridExtent) -> GridExtent {
        if extent.is_empty() {
            return GridExtent::EMPTY;
        }
        GridExtent {
            x0: self.column(extent.x0).saturating_sub(1),
            y0: self.row(extent.y0).saturating_sub(1),
            x1: self.column(extent.x1).saturating_add(2),
            y1: self.row(extent.y1).saturating_add(2),
        }
    }
}

/// A distance in pixels, no farther than any frame reaches.
fn scaled(distance: i64, scale: u32) -> i32 {
    let pixels = (distance * i64::from(scale)) >> 16;
    let far = i64::from(i32::MAX / 4);
    i32::try_from(pixels.clamp(-far, far)).expect("within the bounds just set")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_compose_as_their_points_do() {
        for a in 0..8 {
            for b in 0..8 {
                let (outer, inner) = (CallPlacement::new(a, 5, -7), CallPlacement::new(b, 11, 3));
                let (x, y) = inner.point(2, 9);
                assert_eq!(outer.of(&inner).point(2, 9), outer.point(x, y), "{a} {b}");
            }
        }
    }

    #[test]
    fn the_source_of_a_pixel_is_placed_on_it() {
        let (width, height) = (5, 3);
        for orientation in 0..8 {
            let placement = CallPlacement::new(orientation, 0, 0);
            let placed = placement.extent(&GridExtent { x0: 0, y0: 0, x1: width, y1: height });
            let mut seen = Vec::new();
            for y in placed.y0..placed.y1 {
                for x in placed.x0..placed.x1 {
                    seen.push(placement.source(x, y));
                }
            }
            seen.sort_unstable();
            let all: Vec<_> = (0..width).flat_map(|x| (0..height).map(move |y| (x, y))).collect();
            assert_eq!(seen, all, "orientation {orientation}");
        }
    }

    #[test]
    fn far_coordinates_do_not_overflow() {
        let view = ViewPort { x: i32::MIN, y: i32::MAX, scale: SCALE_MAX };
        assert!(view.column(i32::MAX) > 1 << 28);
        assert!(view.row(i32::MIN) < -(1 << 28));
    }
}
