//! An editing session with a display, task by task: what a person waits for.

use plumb_clock::Stopwatch;
use plumb_display::client::{ClientMode, ClientStep};
use plumb_display::geometry::{SCALE_ONE, ViewPort};
use plumb_display::item::DisplayItem;
use plumb_display::transport::{DisplayConnection, DisplayTransport, DriveError};
use plumb_display::workload::{DisplayDrawing, DisplayRate, ROOT, VIEW};

use super::CHIP;

/// Bytes written at once in a batch; an edit is written as it is made.
const WRITE: usize = 32 << 10;
/// Edits of the task that has them.
const EDITS: usize = 1_000;
/// Width and height of the frame.
const FRAME: (u16, u16) = (400, 400);
/// Pixels that a pan moves: a tenth of the frame.
const PAN_PIXELS: i32 = 40;
/// The drawing of a million rectangles as a whole fits into the frame at this scale.
const WHOLE: u32 = 1_660;
/// Units left of what is shown twice as large: a quarter of the drawing.
const ZOOMED_X: i32 = 3_940;

/// Something that is done, and proved by the checksum of the frame at its end.
#[derive(Clone, Debug)]
pub struct SessionTask {
    /// Its name.
    pub name: &'static str,
    /// What it is, for people.
    pub about: &'static str,
    steps: Vec<ClientStep>,
    mode: ClientMode,
    write: usize,
}

/// What a task took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionSample {
    /// Nanoseconds until it was proved.
    pub ns: f64,
    /// Bytes both ways.
    pub bytes: f64,
    /// Round trips that depended on each other.
    pub round_trips: f64,
    /// Checksum of the frame.
    pub checksum: Option<u64>,
}

fn view(port: ViewPort) -> ClientStep {
    ClientStep::View { view: VIEW, symbol: ROOT, size: FRAME, port }
}

fn display(is_whole: bool, is_proved: bool) -> ClientStep {
    ClientStep::Display { view: VIEW, is_whole, is_proved }
}

/// Every rectangle of the array moved by a unit in turn, each drawn as it is.
fn edits() -> Vec<ClientStep> {
    let of_array = DisplayDrawing::FlatArray.steps();
    let items = of_array.iter().filter_map(|step| match step {
        ClientStep::Add { item, .. } => Some(*item),
        _ => None,
    });
    let numbered: Vec<_> = (0_u32..).zip(items).collect();
    let edit = |(index, mut item): (u32, DisplayItem)| {
        item.values[0] += 1;
        let edit = ClientStep::Edit { symbol: ROOT, index, item, tail: Vec::new() };
        [edit, display(false, false)]
    };
    let edits = numbered.into_iter().cycle().take(EDITS).flat_map(edit);
    edits.chain([display(false, true)]).collect()
}

/// The tasks, in their order; the first begins with connecting.
pub fn session_tasks() -> Vec<SessionTask> {
    let port = |x, y, scale| view(ViewPort { x, y, scale });
    let picture = || DisplayRate::Batch.steps(DisplayDrawing::FlatArray);
    let mut first = vec![ClientStep::Define { symbol: ROOT }, port(0, 0, SCALE_ONE)];
    first.extend(picture());
    let mut million = vec![port(0, 0, WHOLE)];
    million.extend(DisplayRate::Batch.steps(DisplayDrawing::StructuredChip { side: CHIP }));
    let units = i64::from(PAN_PIXELS) * i64::from(SCALE_ONE) / i64::from(2 * WHOLE);
    let moved = ZOOMED_X + i32::try_from(units).unwrap_or(0);
    let shown = |x| vec![port(x, 0, 2 * WHOLE), display(true, true)];
    let task = |name, about, mode, steps| {
        let write = if mode == ClientMode::BATCHED { WRITE } else { 1 };
        SessionTask { name, about, steps, mode, write }
    };
    let batched = ClientMode::BATCHED;
    vec![
        task("cold-start", "connect, and draw 780 rectangles", batched, first),
        task("picture", "draw 780 rectangles anew", batched, picture()),
        task("edits", "1,000 edits, each drawn", ClientMode::PIPELINED, edits()),
        task("million", "draw a million rectangles, all in view", batched, million),
        task("zoom", "show its middle twice as large", batched, shown(ZOOMED_X)),
        task("pan", "move that by a tenth of the frame", batched, shown(moved)),
    ]
}

/// Does all tasks once, over a connection that `open` makes.
///
/// # Errors
/// No display, one that refuses something, or a connection that broke: as `failed` tells it.
pub fn session<T: DisplayTransport, E>(
    tasks: &[SessionTask],
    watch: Stopwatch,
    open: impl FnOnce() -> Result<DisplayConnection<T>, E>,
    failed: impl Fn(DriveError) -> E,
) -> Result<Vec<SessionSample>, E> {
    let mut samples = Vec::with_capacity(tasks.len());
    let mut begun = watch.begin();
    let mut connection = open()?;
    let (mut bytes, mut waits) = (0, 0);
    for task in tasks {
        connection.perform(&task.steps, task.mode, task.write).map_err(&failed)?;
        let ns = watch.ns(watch.end().wrapping_sub(begun));
        let counts = connection.client.counts();
        let all = counts.bytes_sent + counts.bytes_received;
        samples.push(SessionSample {
            ns,
            bytes: (all - bytes) as f64,
            round_trips: (counts.waits - waits) as f64,
            checksum: connection.client.checksum(),
        });
        (bytes, waits) = (all, counts.waits);
        begun = watch.begin();
    }
    Ok(samples)
}
