//! The structured display over sockets and in virtual time, and how its rates are measured: for `plumb display` and for experiments
//! alike.

use std::sync::atomic::{AtomicU64, Ordering};
use std::{io, thread};

use plumb_base::seed::Seed;
use plumb_display::client::ClientStep;
use plumb_display::item::{ITEM_LEN, ItemKind};
use plumb_display::render::LineCoding;
use plumb_display::scene::{DisplayScene, SceneLimits};
use plumb_display::server::DisplayLimits;
use plumb_display::transport::DisplayConnection;
use plumb_display::workload::{DisplayDrawing, DisplayRate};
use plumb_harness::effort::memory_used_by;
use plumb_harness::mirror::mirror_process::NamedSamples;
use plumb_harness::program_task::{ProgramRun, end_preparation, hold_thread_back, process_cost};
use plumb_harness::report::LaunchFault;
use plumb_harness::spec::{DisplayPath, DisplaySpec};

use local_path::{AnyTransport, LocalPath};
use measure::{DisplayPlan, DisplaySample};
use process_tcp::{PROCESS_TCP, ProcessTcp};
use relay::RelayMode;
use virtual_path::{DisplayCosts, VirtualPath};

pub mod advised;
pub mod byte_stream;
pub mod connection;
pub mod local_path;
pub mod measure;
pub mod process_tcp;
pub mod relay;
pub mod session;
pub mod transactions;
pub mod virtual_path;
pub mod websocket;

/// A drawing with its name.
pub type NamedDrawing = (&'static str, DisplayDrawing);

/// Inverters in a row and a column of a chip: a million rectangles and a few.
const CHIP: u32 = 197;

/// Every drawing.
pub const DRAWINGS: [NamedDrawing; 8] = [
    ("polygon", DisplayDrawing::Polygon),
    ("array", DisplayDrawing::FlatArray),
    ("structured-array", DisplayDrawing::StructuredArray { kinds: 1 }),
    ("polygon-bitmap", DisplayDrawing::PolygonBitmap),
    ("array-bitmap", DisplayDrawing::ArrayBitmap),
    ("text", DisplayDrawing::Text),
    ("chip", DisplayDrawing::FlatChip { side: CHIP }),
    ("structured-chip", DisplayDrawing::StructuredChip { side: CHIP }),
];

/// Every mode with its name.
pub const MODES: [(&str, DisplayRate); 5] = [
    ("construction", DisplayRate::Construction),
    ("batch", DisplayRate::Batch),
    ("incremental", DisplayRate::Incremental),
    ("pipelined-incremental", DisplayRate::PipelinedIncremental),
    ("display", DisplayRate::Display),
];

/// Suffix of a mode's name where lines are drawn pixel by pixel.
pub(crate) const PLAIN: &str = "-plain";

/// Samples of a block, and those of one whose drawings take longer than it is to last.
const SAMPLES: u64 = 8;
const SAMPLES_LEAST: usize = 3;

/// Draws for a block; the samples of each response.
///
/// # Errors
/// The display refuses it, or it does not come to its end.
pub fn run(spec: &DisplaySpec, run: &ProgramRun) -> Result<NamedSamples, LaunchFault> {
    let failed = |why: &dyn ToString| LaunchFault::Failed(why.to_string());
    let (lines, mode) = match spec.mode.strip_suffix(PLAIN) {
        Some(mode) => (LineCoding::Plain, mode),
        None => (LineCoding::Tuned, spec.mode.as_str()),
    };
    let limits = DisplayLimits { lines, ..DisplayLimits::default() };
    let drawing = DRAWINGS.into_iter().find(|(name, _)| *name == spec.drawing);
    let mode = MODES.into_iter().find(|(name, _)| *name == mode);
    let ((_, drawing), (_, mode)) =
        drawing.zip(mode).ok_or_else(|| failed(&format!("there is no drawing {spec:?}")))?;
    let plan = DisplayPlan::new(drawing, mode);
    match &spec.path {
        DisplayPath::Local(name) if name == PROCESS_TCP => {
            let clock = (run.watch, run.seed);
            let process = ProcessTcp::open(limits, run.cpu_peer, clock)?;
            local(&plan, run, Ok(AnyTransport::Process(Box::new(process))), None)
        }
        DisplayPath::Local(name) => {
            let Some(mode) = RelayMode::of_path(name) else {
                let path =
                    LocalPath::from_name(name).ok_or_else(|| failed(&"there is no such path"))?;
                let transport = path.open(limits, run.cpu_peer);
                return local(&plan, run, transport, None);
            };
            let draw = || {
                // First the threads of the other end, which would inherit the nice value.
                let opened = mode.open(limits, run.cpu_peer);
                let (transport, writes) = opened.map_err(|error| failed(&error))?;
                if mode.holds_client_back() {
                    hold_thread_back().map_err(|error| failed(&error))?;
                }
                local(&plan, run, Ok(transport), Some(&writes))
            };
            // In a thread of its own: a nice value that was raised stays.
            let drawn = thread::scope(|scope| scope.spawn(draw).join());
            drawn.unwrap_or_else(|_| Err(failed(&"the client's thread panicked")))
        }
        DisplayPath::Memory => Ok(memory(drawing)),
        DisplayPath::Virtual { link, slower_percent, is_shared, item_ns } => {
            let slower = slower_percent.map(|percent| percent as f64 / 100.0);
            let (link, item_ns) = (link.clone(), f64::from(*item_ns));
            let path = VirtualPath { link, slower, is_shared: *is_shared, item_ns };
            let costs = DisplayCosts::measure(&plan, run.watch)?;
            let sample = virtual_path::draw(&plan, &costs, &path, Seed(run.seed))?;
            Ok(vec![
                ("rate".to_owned(), vec![sample.rate]),
                ("bytes".to_owned(), vec![sample.bytes]),
                ("round-trips".to_owned(), vec![sample.round_trips]),
            ])
        }
    }
}

/// Draws in real time over a transport, and counts what a relay writes meanwhile.
fn local(
    plan: &DisplayPlan,
    run: &ProgramRun,
    transport: io::Result<AnyTransport>,
    writes: Option<&AtomicU64>,
) -> Result<NamedSamples, LaunchFault> {
    let failed = |why: &dyn ToString| LaunchFault::Failed(why.to_string());
    let transport = transport.map_err(|error| failed(&error))?;
    let mut connection = DisplayConnection::open(transport).map_err(|error| failed(&error))?;
    plan.prepare(&mut connection).map_err(|error| failed(&error))?;
    end_preparation();
    let mut samples = Vec::new();
    let mut costs: [Vec<f64>; 3] = Default::default();
    let ticks = run.duration_ticks / SAMPLES;
    let begun = run.watch.begin();
    for _ in 0..SAMPLES {
        let is_late = run.watch.end().wrapping_sub(begun) >= run.duration_ticks;
        if is_late && samples.len() >= SAMPLES_LEAST {
            break;
        }
        let written = || writes.map_or(0, |writes| writes.load(Ordering::Relaxed));
        let before = (process_cost(), written());
        let sample = plan.sample(&mut connection, run.watch, ticks);
        let sample = sample.map_err(|error| failed(&error))?;
        let after = (process_cost(), written());
        let drawings = sample.drawings as f64;
        let items = drawings * f64::from(plan.drawing.units());
        costs[0].push((after.0.cpu_ns - before.0.cpu_ns) as f64 / items);
        costs[1].push((after.0.switches - before.0.switches) as f64 / items);
        costs[2].push((after.1 - before.1) as f64 / drawings);
        samples.push(sample);
    }
    let mut values = of_samples(&samples);
    let [cpu, switches, written] = costs;
    values.extend([("cpu".to_owned(), cpu), ("switches".to_owned(), switches)]);
    if writes.is_some() {
        values.push(("writes".to_owned(), written));
    }
    // Once more, and not timed.
    let used = memory_used_by(|| plan.sample(&mut connection, run.watch, ticks).map(drop));
    let used = used.map_err(|error| failed(&error))?;
    if let Some(used) = used {
        let bytes = [("code", used.code), ("data", used.data)];
        values.extend(bytes.map(|(name, bytes)| (name.to_owned(), vec![bytes as f64])));
    }
    Ok(values)
}

/// Bytes of a drawing's items, and of a bitmap of its frame with a bit a pixel; and the pixels of its vectors.
fn memory(drawing: DisplayDrawing) -> NamedSamples {
    let mut scene = DisplayScene::new(SceneLimits::default());
    let mut sizes = [0.0; 3];
    for step in drawing.steps() {
        match step {
            ClientStep::Define { symbol } => {
                scene.define(symbol).ok();
            }
            ClientStep::Add { symbol, item, tail } => {
                if item.kind == ItemKind::Vector {
                    // One in each column or row, whichever are more.
                    let [x0, y0, x1, y1] = item.values;
                    sizes[2] += f64::from(x0.abs_diff(x1).max(y0.abs_diff(y1))) + 1.0;
                }
                scene.add(symbol, std::iter::once(Ok(item)), &tail).ok();
            }
            _ => {}
        }
    }
    for symbol in scene.symbol_ids().filter_map(|id| scene.symbol(id)) {
        sizes[0] += (symbol.items().len() * ITEM_LEN + symbol.tail().len()) as f64;
    }
    let (width, height) = drawing.size();
    sizes[1] = f64::from(width) * f64::from(height) / 8.0;
    ["display-file", "bitmap", "pixels"]
        .into_iter()
        .zip(sizes)
        .map(|(name, bytes)| (name.to_owned(), vec![bytes]))
        .collect()
}

fn of_samples(samples: &[DisplaySample]) -> NamedSamples {
    let all = |of: fn(&DisplaySample) -> f64| samples.iter().map(of).collect();
    vec![
        ("rate".to_owned(), all(|sample| sample.rate)),
        ("bytes".to_owned(), all(|sample| sample.bytes_sent + sample.bytes_received)),
        ("round-trips".to_owned(), all(|sample| sample.round_trips)),
    ]
}
