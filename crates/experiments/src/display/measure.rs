//! Rates of a display: a drawing drawn in a mode again and again, until its last frame is proved.

use plumb_clock::Stopwatch;
use plumb_display::client::{ClientCounts, ClientStep, DisplayClient};
use plumb_display::server::{DisplayLimits, DisplayServer};
use plumb_display::transport::{DisplayConnection, DisplayTransport, DriveError};
use plumb_display::workload::{DisplayDrawing, DisplayRate, ROOT};

/// Bytes written at once in a batch.
const BATCH_WRITE: usize = 32 << 10;

/// What is measured: a drawing and a rate, with all that is prepared beforehand.
#[derive(Debug)]
pub struct DisplayPlan {
    /// What is drawn.
    pub drawing: DisplayDrawing,
    /// How.
    pub rate: DisplayRate,
    before: Vec<ClientStep>,
    steps: Vec<ClientStep>,
    write: usize,
}

/// What one stretch of drawing gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DisplaySample {
    /// Items, or characters of text, a second.
    pub rate: f64,
    /// Drawings drawn.
    pub drawings: u64,
    /// What crossed the connection for one of them, on average.
    pub messages: f64,
    /// Bytes to the display.
    pub bytes_sent: f64,
    /// Bytes from it.
    pub bytes_received: f64,
    /// Round trips that depended on each other.
    pub round_trips: f64,
    /// Checksum of the last frame, where one was drawn.
    pub checksum: Option<u64>,
}

impl DisplayPlan {
    /// Makes its steps.
    pub fn new(drawing: DisplayDrawing, rate: DisplayRate) -> Self {
        let mut before = vec![ClientStep::Define { symbol: ROOT }, drawing.view()];
        if rate == DisplayRate::Display {
            before.extend(drawing.steps());
        }
        let write = match rate {
            DisplayRate::Incremental | DisplayRate::PipelinedIncremental => 1,
            _ => BATCH_WRITE,
        };
        Self { drawing, rate, before, steps: rate.steps(drawing), write }
    }

    /// What is done once, before the first drawing.
    pub(crate) fn before(&self) -> &[ClientStep] {
        &self.before
    }

    /// What is done for each drawing.
    pub(crate) fn steps(&self) -> &[ClientStep] {
        &self.steps
    }

    /// Bytes written at once.
    pub(crate) const fn write(&self) -> usize {
        self.write
    }

    /// Draws twice: the first drawing finds memory that is not there yet, and the second memory that the first has left.
    ///
    /// # Errors
    /// The display refuses it, or is gone.
    pub fn prepare<T: DisplayTransport>(
        &self,
        connection: &mut DisplayConnection<T>,
    ) -> Result<(), DriveError> {
        let mode = self.rate.mode();
        connection.perform(&self.before, mode, self.write)?;
        connection.perform(&self.steps, mode, self.write)?;
        connection.perform(&self.steps, mode, self.write)
    }

    /// Draws until so many ticks have passed, and once at least; to be called after [`DisplayPlan::prepare`].
    ///
    /// # Errors
    /// The display refuses it, or is gone.
    pub fn sample<T: DisplayTransport>(
        &self,
        connection: &mut DisplayConnection<T>,
        watch: Stopwatch,
        ticks: u64,
    ) -> Result<DisplaySample, DriveError> {
        let mode = self.rate.mode();
        let counts = connection.client.counts();
        let mut drawings = 0_u64;
        let begun = watch.begin();
        let elapsed = loop {
            connection.perform(&self.steps, mode, self.write)?;
            drawings += 1;
            let elapsed = watch.end().wrapping_sub(begun);
            if elapsed >= ticks {
                break elapsed;
            }
        };
        let units = f64::from(self.drawing.units()) * drawings as f64;
        let rate = units / (watch.ns(elapsed) * 1e-9);
        Ok(self.describe(rate, drawings, counts, &connection.client))
    }

    fn describe(
        &self,
        rate: f64,
        drawings: u64,
        before: ClientCounts,
        client: &DisplayClient,
    ) -> DisplaySample {
        let after = client.counts();
        let each = |from: u64, to: u64| (to - from) as f64 / drawings as f64;
        let is_drawn = self.rate != DisplayRate::Construction;
        DisplaySample {
            rate,
            drawings,
            messages: each(before.messages, after.messages),
            bytes_sent: each(before.bytes_sent, after.bytes_sent),
            bytes_received: each(before.bytes_received, after.bytes_received),
            round_trips: each(before.waits, after.waits),
            checksum: client.checksum().filter(|_| is_drawn),
        }
    }
}

/// What a display decodes and stores: the bytes are made beforehand, nothing is drawn.
pub fn decoding(drawing: DisplayDrawing, watch: Stopwatch, ticks: u64) -> DisplaySample {
    let rate = DisplayRate::Construction;
    let mut client = DisplayClient::new(rate.mode());
    let mut server = DisplayServer::new(DisplayLimits::default());
    server.handle(client.output());
    client.clear_output();
    let before = client.counts();
    for step in rate.steps(drawing) {
        client.perform(&step);
    }
    client.flush();
    server.handle(client.output());
    let known = server.counts().items;
    let mut drawings = 0_u64;
    let begun = watch.begin();
    let elapsed = loop {
        server.handle(client.output());
        drawings += 1;
        let elapsed = watch.end().wrapping_sub(begun);
        if elapsed >= ticks {
            break elapsed;
        }
    };
    let items = server.counts().items - known;
    DisplaySample {
        rate: items as f64 / (watch.ns(elapsed) * 1e-9),
        drawings,
        messages: (client.counts().messages - before.messages) as f64,
        bytes_sent: client.output().len() as f64,
        bytes_received: 0.0,
        round_trips: 0.0,
        checksum: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::display::local_path::LocalPath;

    #[test]
    fn every_path_draws_the_same_and_counts_the_same() {
        let watch = Stopwatch::new(None);
        for rate in
            [DisplayRate::Batch, DisplayRate::Incremental, DisplayRate::PipelinedIncremental]
        {
            let plan = DisplayPlan::new(DisplayDrawing::FlatArray, rate);
            let samples: Vec<DisplaySample> = LocalPath::ALL
                .into_iter()
                .map(|path| {
                    let transport = path.open(DisplayLimits::default(), None).unwrap();
                    let mut connection = DisplayConnection::open(transport).unwrap();
                    plan.prepare(&mut connection).unwrap();
                    plan.sample(&mut connection, watch, 1).unwrap()
                })
                .collect();
            for sample in &samples {
                assert!(sample.rate > 0.0 && sample.checksum.is_some(), "{sample:?}");
                assert_eq!(sample.checksum, samples[0].checksum);
                assert!((sample.bytes_sent - samples[0].bytes_sent).abs() < 1e-9, "{samples:?}");
                assert!((sample.round_trips - samples[0].round_trips).abs() < 1e-9, "{samples:?}");
            }
        }
    }
}
