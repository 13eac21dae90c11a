//! What is drawn: the drawings of Lantz, Nowicki & Theimer (1985, §3.1.1), larger ones, and text.

use std::f64::consts::TAU;

use crate::client::{ClientMode, ClientStep, DisplayClient};
use crate::frame::DisplayFrame;
use crate::geometry::{SCALE_ONE, ViewPort};
use crate::item::{BITMAP_HEADER_LEN, BitmapRows, DisplayItem, GLYPH_HEIGHT, STIPPLES, TailRange};
use crate::server::{DisplayLimits, DisplayServer};

/// The symbol that is shown.
pub const ROOT: u32 = 0;
/// The view that shows it.
pub const VIEW: u32 = 0;

/// Sides of the polygon, and its radius in pixels.
const SIDES: u16 = 36;
const RADIUS: f64 = 350.0;
/// Rows and columns of the array of inverters.
const ROWS: u32 = 6;
const COLUMNS: u32 = 5;
/// What an inverter takes of the array.
const CELL: (i32, i32) = (80, 66);
/// Rectangles of an inverter: its own, and those of two contacts.
const INVERTER_ITEMS: u32 = 26;
/// Characters of a line of text, and lines of a page.
const LINE: u16 = 80;
const LINES: u16 = 48;

/// Colors of pixels that are drawn.
const COLORS: std::ops::Range<u8> = 1..16;
/// Bytes of a bitmap, at most: two go in a message.
const BITMAP_MAX: usize = 30_000;

/// Layers: a stipple and a color each.
const METAL: usize = 0;
const POLY: usize = 1;
const DIFFUSION: usize = 2;
const IMPLANT: usize = 3;

/// A drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisplayDrawing {
    /// A polygon of 36 corners, each joined to every other: 630 vectors.
    Polygon,
    /// Five by six inverters of 26 rectangles in one list.
    FlatArray,
    /// The same, with so many kinds of inverters (1 to 30), defined once each and called.
    StructuredArray {
        /// Kinds.
        kinds: u32,
    },
    /// What [`DisplayDrawing::Polygon`] looks like, drawn by the client: a bit a pixel.
    PolygonBitmap,
    /// What [`DisplayDrawing::FlatArray`] looks like: a bit a pixel and color.
    ArrayBitmap,
    /// A page of text of 48 lines.
    Text,
    /// So many by so many inverters in one list.
    FlatChip {
        /// In a row, and in a column.
        side: u32,
    },
    /// The same as rows of inverters: a symbol for the inverter and one for the row.
    StructuredChip {
        /// In a row, and in a column.
        side: u32,
    },
}

/// What a rate counts, and so how the client works (§3.2, §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisplayRate {
    /// Items added in batches, not drawn.
    Construction,
    /// Items added in batches, then drawn.
    Batch,
    /// Each item drawn as it is added; every message waits for the reply to the one before.
    Incremental,
    /// The same without waiting.
    PipelinedIncremental,
    /// Draws again what is there already.
    Display,
}

impl DisplayDrawing {
    /// Items that it shows, those of called symbols as often as they are, those of a bitmap as what it was made of.
    pub const fn items(self) -> u32 {
        match self {
            Self::Polygon | Self::PolygonBitmap => SIDES as u32 * (SIDES as u32 - 1) / 2,
            Self::FlatArray | Self::ArrayBitmap | Self::StructuredArray { .. } => {
                ROWS * COLUMNS * INVERTER_ITEMS
            }
            Self::Text => LINES as u32,
            Self::FlatChip { side } | Self::StructuredChip { side } => side * side * INVERTER_ITEMS,
        }
    }

    /// What its rate counts: characters of text, else items.
    pub const fn units(self) -> u32 {
        match self {
            Self::Text => LINES as u32 * LINE as u32,
            _ => self.items(),
        }
    }

    /// Width and height of its frame.
    pub const fn size(self) -> (u16, u16) {
        match self {
            Self::Polygon | Self::PolygonBitmap => (800, 800),
            Self::Text => (640, 768),
            _ => (400, 400),
        }
    }

    /// The view that shows it.
    pub fn view(self) -> ClientStep {
        let (size, scale) = (self.size(), SCALE_ONE);
        let port = ViewPort { x: 0, y: 0, scale };
        ClientStep::View { view: VIEW, symbol: ROOT, size, port }
    }

    /// The steps that build it, whatever was there before.
    pub fn steps(self) -> Vec<ClientStep> {
        let mut steps = vec![ClientStep::Define { symbol: ROOT }];
        match self {
            Self::Polygon => steps.extend(polygon().map(|item| add(ROOT, item))),
            Self::FlatArray => flat(&mut steps, COLUMNS, ROWS),
            Self::FlatChip { side } => flat(&mut steps, side, side),
            Self::StructuredArray { kinds } => {
                structured(&mut steps, kinds.clamp(1, ROWS * COLUMNS));
            }
            Self::StructuredChip { side } => chip(&mut steps, side),
            Self::Text => steps.extend((0..LINES).map(|line| add_line(ROOT, line))),
            Self::PolygonBitmap => bitmaps(&mut steps, &Self::Polygon.frame()),
            Self::ArrayBitmap => bitmaps(&mut steps, &Self::FlatArray.frame()),
        }
        steps
    }

    /// What it looks like.
    fn frame(self) -> DisplayFrame {
        let mut client = DisplayClient::new(ClientMode::BATCHED);
        client.perform(&ClientStep::Define { symbol: ROOT });
        client.perform(&self.view());
        for step in DisplayRate::Batch.steps(self) {
            client.perform(&step);
        }
        client.finish();
        let mut server = DisplayServer::new(DisplayLimits::default());
        server.handle(client.output());
        server.shown().expect("a drawing within the limits").clone()
    }
}

impl DisplayRate {
    /// How the client works.
    pub const fn mode(self) -> ClientMode {
        match self {
            Self::Incremental => ClientMode::STOP_AND_WAIT,
            Self::PipelinedIncremental => ClientMode::PIPELINED,
            Self::Construction | Self::Batch | Self::Display => ClientMode::BATCHED,
        }
    }

    /// The steps of one round, of which there may be any number.
    pub fn steps(self, drawing: DisplayDrawing) -> Vec<ClientStep> {
        let display = |is_whole, is_proved| ClientStep::Display { view: VIEW, is_whole, is_proved };
        let mut steps = match self {
            Self::Display => return vec![display(true, true)],
            _ => drawing.steps(),
        };
        match self {
            Self::Construction | Self::Display => {}
            Self::Batch => steps.push(display(false, true)),
            Self::Incremental | Self::PipelinedIncremental => {
                let built = std::mem::take(&mut steps);
                let mut is_first = true;
                for step in built {
                    let draws = matches!(step, ClientStep::Add { symbol: ROOT, .. });
                    steps.push(step);
                    if draws {
                        steps.push(display(is_first, false));
                        is_first = false;
                    }
                }
                steps.push(display(false, true));
            }
        }
        steps
    }
}

fn add(symbol: u32, item: DisplayItem) -> ClientStep {
    ClientStep::Add { symbol, item, tail: Vec::new() }
}

/// Each corner to every later one.
fn polygon() -> impl Iterator<Item = DisplayItem> {
    let corner = |index: u16| {
        let angle = TAU * f64::from(index) / f64::from(SIDES);
        (rounded(400.0 + RADIUS * angle.cos()), rounded(400.0 + RADIUS * angle.sin()))
    };
    (0..SIDES).flat_map(move |from| {
        (from + 1..SIDES).map(move |to| DisplayItem::vector(1, corner(from), corner(to)))
    })
}

#[expect(clippy::cast_possible_truncation, reason = "it is within a frame")]
fn rounded(value: f64) -> i32 {
    value.round() as i32
}

/// A rectangle of a layer by its corner, width and height, moved.
fn layer(layer: usize, [x, y, width, height]: [i32; 4], (dx, dy): (i32, i32)) -> DisplayItem {
    let color = [2, 3, 4, 5][layer];
    let from = (x + dx, y + dy);
    DisplayItem::rectangle(color, STIPPLES[layer], from, (from.0 + width, from.1 + height))
}

/// A contact cut: metal, diffusion, and the cut.
fn contact(at: (i32, i32)) -> [DisplayItem; 3] {
    [
        layer(METAL, [0, 0, 8, 8], at),
        layer(DIFFUSION, [0, 0, 8, 8], at),
        layer(POLY, [2, 2, 4, 4], at),
    ]
}

/// Where an inverter has its contacts.
const CONTACTS: [(i32, i32); 2] = [(28, 6), (28, 50)];

/// The rectangles of an inverter that are its own; `kind` moves its output a little, so that kinds differ.
fn inverter(kind: u32, at: (i32, i32)) -> impl Iterator<Item = DisplayItem> {
    let shift = i32::try_from(kind % 8).unwrap_or(0);
    let own: [(usize, [i32; 4]); 20] = [
        // Supply and ground.
        (METAL, [0, 4, 78, 12]),
        (METAL, [0, 48, 78, 12]),
        // From one to the other.
        (DIFFUSION, [28, 6, 8, 52]),
        (DIFFUSION, [24, 12, 16, 8]),
        (DIFFUSION, [24, 44, 16, 8]),
        // The pull-up: implant around its gate.
        (IMPLANT, [22, 16, 20, 14]),
        (POLY, [20, 18, 24, 8]),
        (POLY, [40, 18, 6, 16]),
        (DIFFUSION, [36, 28, 10, 6]),
        // The pull-down and its input.
        (POLY, [4, 38, 40, 4]),
        (POLY, [4, 30, 4, 12]),
        (POLY, [0, 30, 8, 4]),
        // The output.
        (DIFFUSION, [36, 30, 20, 4]),
        (METAL, [52, 26, 8, 12]),
        (METAL, [56, 30, 22, 4]),
        (POLY, [54, 28, 4, 8]),
        (POLY, [60 + shift, 28, 6, 8]),
        // Wells at both rails.
        (IMPLANT, [64, 6, 8, 8]),
        (IMPLANT, [64, 50, 8, 8]),
        (DIFFUSION, [66, 8, 4, 4]),
    ];
    own.into_iter().map(move |(of, rectangle)| layer(of, rectangle, at))
}

fn cell(column: u32, row: u32) -> (i32, i32) {
    let at = |index: u32, pitch: i32| i32::try_from(index).unwrap_or(0) * pitch;
    (at(column, CELL.0), at(row, CELL.1))
}

fn flat(steps: &mut Vec<ClientStep>, columns: u32, rows: u32) {
    for row in 0..rows {
        for column in 0..columns {
            let (x, y) = cell(column, row);
            steps.extend(inverter(0, (x, y)).map(|item| add(ROOT, item)));
            for (dx, dy) in CONTACTS {
                steps.extend(contact((x + dx, y + dy)).map(|item| add(ROOT, item)));
            }
        }
    }
}

/// Adds what a frame shows: strips of each color that occurs in them.
fn bitmaps(steps: &mut Vec<ClientStep>, frame: &DisplayFrame) {
    let width = frame.width();
    let strip = (BITMAP_MAX - BITMAP_HEADER_LEN) / usize::from(width).div_ceil(8);
    let strip = u16::try_from(strip).unwrap_or(u16::MAX);
    for top in (0..frame.height()).step_by(strip.into()) {
        let height = strip.min(frame.height() - top);
        for color in COLORS {
            let is_set = |x, y| frame.color(x, top + y) == Some(color);
            if !(0..height).any(|y| (0..width).any(|x| is_set(x, y))) {
                continue;
            }
            let mut tail = Vec::new();
            BitmapRows::encode((width, height), is_set, &mut tail);
            let len = i32::try_from(tail.len()).expect("less than BITMAP_MAX");
            let item = DisplayItem::bitmap(color, (0, top.into()), TailRange { offset: 0, len });
            steps.push(ClientStep::Add { symbol: ROOT, item, tail });
        }
    }
}

/// Defines a contact as symbol 1 and kinds of inverters as those from 2 on.
fn define_inverters(steps: &mut Vec<ClientStep>, kinds: u32) {
    steps.push(ClientStep::Define { symbol: 1 });
    steps.extend(contact((0, 0)).map(|item| add(1, item)));
    for kind in 0..kinds {
        let symbol = 2 + kind;
        steps.push(ClientStep::Define { symbol });
        steps.extend(inverter(kind, (0, 0)).map(|item| add(symbol, item)));
        steps.extend(CONTACTS.map(|at| add(symbol, DisplayItem::call(1, 0, at))));
    }
}

fn structured(steps: &mut Vec<ClientStep>, kinds: u32) {
    define_inverters(steps, kinds);
    for index in 0..ROWS * COLUMNS {
        let symbol = i32::try_from(2 + index % kinds).unwrap_or(2);
        let at = cell(index % COLUMNS, index / COLUMNS);
        steps.push(add(ROOT, DisplayItem::call(symbol, 0, at)));
    }
}

fn chip(steps: &mut Vec<ClientStep>, side: u32) {
    define_inverters(steps, 1);
    steps.push(ClientStep::Define { symbol: 3 });
    steps.extend((0..side).map(|x| add(3, DisplayItem::call(2, 0, cell(x, 0)))));
    steps.extend((0..side).map(|y| add(ROOT, DisplayItem::call(3, 0, cell(0, y)))));
}

/// A line of printable characters, each line begun by the next one.
fn add_line(symbol: u32, line: u16) -> ClientStep {
    let character = |column: u16| b' ' + u8::try_from((line + column) % 95).unwrap_or(0);
    let tail: Vec<u8> = (0..LINE).map(character).collect();
    let range = TailRange { offset: 0, len: LINE.into() };
    let item = DisplayItem::text(1, (0, i32::from(line) * GLYPH_HEIGHT), range);
    ClientStep::Add { symbol, item, tail }
}
