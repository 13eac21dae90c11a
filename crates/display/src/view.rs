//! A view: a symbol on a frame, and what of the frame is no longer right.

use crate::frame::DisplayFrame;
use crate::geometry::{CallPlacement, GridExtent, ViewPort};
use crate::render::{LineCoding, OutOfBudget, ScenePainter};
use crate::scene::{DisplayScene, SceneChange};

/// A symbol on a frame.
#[derive(Debug)]
pub(crate) struct DisplayView {
    symbol: u32,
    port: ViewPort,
    frame: DisplayFrame,
    /// Pixels to be drawn anew.
    damage: GridExtent,
    /// Items of the symbol that were there when it was last drawn.
    drawn: usize,
    lines: LineCoding,
}

impl DisplayView {
    pub(crate) fn new(
        symbol: u32,
        port: ViewPort,
        (width, height): (u16, u16),
        lines: LineCoding,
    ) -> Self {
        let frame = DisplayFrame::new(width, height);
        Self { symbol, port, damage: frame.extent(), frame, drawn: 0, lines }
    }

    pub(crate) fn frame(&self) -> &DisplayFrame {
        &self.frame
    }

    /// Shows another part of the same symbol: at one scale only what was not seen before is drawn.
    pub(crate) fn show(&mut self, symbol: u32, port: ViewPort) {
        let by = (self.port.column(port.x).checked_neg(), self.port.row(port.y).checked_neg());
        let (old, all) = (self.port, self.frame.extent());
        self.port = port;
        let is_moved = symbol == self.symbol && port.scale == old.scale && self.damage.is_empty();
        // Only by whole pixels; stipples lie at multiples of eight of them.
        let is_whole = |from: i32, to: i32, by: i32| {
            (i64::from(to) - i64::from(from)) * i64::from(port.scale) == -i64::from(by) << 16
        };
        if let (Some(dx), Some(dy)) = by
            && is_moved
            && is_whole(old.x, port.x, dx)
            && is_whole(old.y, port.y, dy)
            && dx % 8 == 0
            && dy % 8 == 0
        {
            self.frame.shift(dx, dy);
            self.damage = uncovered(&all, dx, dy);
        } else {
            self.symbol = symbol;
            self.damage_all();
        }
    }

    pub(crate) fn damage_all(&mut self) {
        self.damage = self.frame.extent();
    }

    /// Notes what changed.
    pub(crate) fn note(&mut self, scene: &DisplayScene, change: &SceneChange) {
        if change.symbol == self.symbol
            && change.appended_from.is_some_and(|from| from >= self.drawn)
        {
            return;
        }
        match scene.within(self.symbol, change.symbol, &change.extent) {
            Some(extent) => {
                let pixels = self.port.pixels(&extent).intersection(&self.frame.extent());
                if !pixels.is_empty() {
                    self.damage = self.damage.union(&pixels);
                }
            }
            None => self.damage_all(),
        }
    }

    /// Draws what is not right; how many items that were. `budget` is what they may cost.
    ///
    /// # Errors
    /// The budget does not suffice: the frame is not right, and is drawn as a whole next time.
    pub(crate) fn paint(
        &mut self,
        scene: &mut DisplayScene,
        budget: u64,
    ) -> Result<u64, OutOfBudget> {
        scene.refresh(self.symbol);
        let painted = self.paint_damage(scene, budget);
        if painted.is_err() {
            self.damage_all();
        }
        painted
    }

    fn paint_damage(&mut self, scene: &DisplayScene, budget: u64) -> Result<u64, OutOfBudget> {
        let all = self.frame.extent();
        let (damage, drawn) = (std::mem::replace(&mut self.damage, GridExtent::EMPTY), self.drawn);
        if !damage.is_empty() {
            self.frame.fill(&damage, 0, 0);
        }
        let Some(symbol) = scene.symbol(self.symbol) else { return Ok(0) };
        let is_whole = damage == all;
        let mut painter = ScenePainter {
            scene,
            view: &self.port,
            frame: &mut self.frame,
            clip: damage,
            budget,
            items: 0,
            lines: self.lines,
        };
        if !damage.is_empty() {
            painter.symbol(symbol, &CallPlacement::HERE, 0)?;
        }
        if !is_whole {
            // The last symbol lies above all others: nothing below has to be drawn again.
            painter.clip = all;
            painter.symbol(symbol, &CallPlacement::HERE, drawn)?;
        }
        let items = painter.items;
        self.drawn = symbol.items().len();
        Ok(items)
    }

    /// Its frame's checksum.
    pub(crate) fn checksum(&mut self) -> u64 {
        self.frame.checksum()
    }
}

/// What comes from outside when a frame moves by so many pixels: the least extent that holds it.
fn uncovered(all: &GridExtent, dx: i32, dy: i32) -> GridExtent {
    let stays = GridExtent {
        x0: all.x0 + dx.max(0),
        y0: all.y0 + dy.max(0),
        x1: all.x1 + dx.min(0),
        y1: all.y1 + dy.min(0),
    };
    match (dx, dy) {
        (0, 0) => GridExtent::EMPTY,
        (_, 0) if dx > 0 => GridExtent { x1: stays.x0.min(all.x1), ..*all },
        (_, 0) => GridExtent { x0: stays.x1.max(all.x0), ..*all },
        (0, _) if dy > 0 => GridExtent { y1: stays.y0.min(all.y1), ..*all },
        (0, _) => GridExtent { y0: stays.y1.max(all.y0), ..*all },
        // Both: the corner that stays is not worth two extents.
        _ => *all,
    }
}
