//! A client's side of one connection, as a machine: steps in, bytes out.
//!
//! Stop-and-wait, pipelined and batched operation are one protocol: they differ by how many messages may be without a reply, and by how
//! many items a message has.

use std::collections::{BTreeMap, VecDeque};

use crate::codec::{self, MessageReader};
use crate::geometry::ViewPort;
use crate::item::{DisplayItem, ITEM_LEN};
use crate::message::{
    BODY_MIN, DisplayReply, DisplayRequest, HEADER_LEN, MessageOpcode, REPLY_WANTED, RefusalCode,
    VERSION,
};
use crate::scene::{DisplayScene, SceneError, SceneLimits};

/// Bytes of a batch, at most; every display takes so many.
const BATCH_BYTES: usize = BODY_MIN - 4_096;
/// Bytes of a reply, at most: a picture.
const REPLY_MAX: usize = 1 << 28;

/// How messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientMode {
    /// Messages without a reply, at most; one is stop-and-wait. None: replies are asked for where a step does so, and not waited for.
    pub window: Option<u16>,
    /// Items of a message, at most.
    pub batch: u32,
}

impl ClientMode {
    /// Every message waits for the reply to the one before.
    pub const STOP_AND_WAIT: Self = Self { window: Some(1), batch: 1 };
    /// Messages of one item each, which wait for nothing.
    pub const PIPELINED: Self = Self { window: None, batch: 1 };
    /// As many items in a message as fit.
    pub const BATCHED: Self = Self { window: None, batch: u32::MAX };
}

/// What a client does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientStep {
    /// Makes a symbol without items.
    Define {
        /// Its number.
        symbol: u32,
    },
    /// Adds an item.
    Add {
        /// To which symbol.
        symbol: u32,
        /// What.
        item: DisplayItem,
        /// Its text, corners or rows, from offset 0.
        tail: Vec<u8>,
    },
    /// Replaces an item.
    Edit {
        /// Of which symbol.
        symbol: u32,
        /// In place of which.
        index: u32,
        /// By what.
        item: DisplayItem,
        /// Its text, corners or rows, from offset 0.
        tail: Vec<u8>,
    },
    /// Removes a symbol.
    Remove {
        /// Which.
        symbol: u32,
    },
    /// Makes or changes a view.
    View {
        /// Its number.
        view: u32,
        /// What it shows.
        symbol: u32,
        /// Width and height in pixels.
        size: (u16, u16),
        /// What part of it.
        port: ViewPort,
    },
    /// Removes a view.
    Close {
        /// Which.
        view: u32,
    },
    /// Draws.
    Display {
        /// Which view.
        view: u32,
        /// All of it.
        is_whole: bool,
        /// Whether a reply is to prove it.
        is_proved: bool,
    },
    /// Asks for a picture.
    Picture {
        /// Of which view.
        view: u32,
    },
}

/// What crossed the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounts {
    /// Messages sent.
    pub messages: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Replies received.
    pub replies: u64,
    /// Times that the client had nothing to do until a reply came: round trips that depend on each other.
    pub waits: u64,
    /// Messages refused.
    pub refused: u64,
}

/// Why a client cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The display sent something that is no reply.
    #[error("the display sent bytes that are not a reply; is it a display of plumb?")]
    NoReply,
    /// The display refused a message.
    #[error("{0}")]
    Refused(RefusalCode),
}

/// Items that are to become one message.
#[derive(Debug)]
struct OpenBatch {
    symbol: u32,
    /// Where its message begins.
    start: usize,
    count: u32,
    tail: Vec<u8>,
}

/// What another display is told when the one before is gone.
#[derive(Debug)]
struct SceneMirror {
    scene: DisplayScene,
    views: BTreeMap<u32, (u32, (u16, u16), ViewPort)>,
}

/// A client's side of one connection.
#[derive(Debug)]
pub struct DisplayClient {
    mode: ClientMode,
    reader: MessageReader,
    output: Vec<u8>,
    batch: Option<OpenBatch>,
    mirror: Option<SceneMirror>,
    /// Messages sent on this connection, and those of them that are known to be carried out.
    sent: u64,
    answered: u64,
    /// Messages that a reply was asked for.
    awaited: VecDeque<u64>,
    checksum: Option<u64>,
    items: u32,
    picture: Option<Vec<u8>>,
    error: Option<ClientError>,
    counts: ClientCounts,
}

impl DisplayClient {
    /// For a new connection; its greeting is the first output.
    pub fn new(mode: ClientMode) -> Self {
        let mut client = Self {
            mode,
            reader: MessageReader::new(REPLY_MAX),
            output: Vec::new(),
            batch: None,
            mirror: None,
            sent: 0,
            answered: 0,
            awaited: VecDeque::new(),
            checksum: None,
            items: 0,
            picture: None,
            error: None,
            counts: ClientCounts::default(),
        };
        client.greet();
        client
    }

    /// As [`DisplayClient::new`], and able to tell another display of its scene.
    pub fn with_mirror(mode: ClientMode, limits: SceneLimits) -> Self {
        let mirror = SceneMirror { scene: DisplayScene::new(limits), views: BTreeMap::new() };
        Self { mirror: Some(mirror), ..Self::new(mode) }
    }

    /// Goes on with a new connection, to a display that knows nothing: what is in the mirror is sent again.
    pub fn reconnect(&mut self) {
        self.reader = MessageReader::new(REPLY_MAX);
        self.output.clear();
        (self.batch, self.error) = (None, None);
        (self.sent, self.answered) = (0, 0);
        self.awaited.clear();
        self.greet();
        let Some(mirror) = self.mirror.take() else { return };
        for symbol in mirror.scene.symbols_from_below() {
            self.send(&DisplayRequest::Define { symbol }, false);
            let Some(known) = mirror.scene.symbol(symbol) else { continue };
            for item in known.items() {
                let (item, tail) = item.with_tail(known.tail());
                self.add(symbol, &item, tail, u32::MAX);
            }
        }
        for (view, (symbol, size, port)) in &mirror.views {
            self.send(
                &DisplayRequest::View { view: *view, symbol: *symbol, size: *size, port: *port },
                false,
            );
        }
        self.mirror = Some(mirror);
    }

    fn greet(&mut self) {
        self.send(&DisplayRequest::Hello { version: VERSION }, true);
    }

    /// Changes how messages are sent from now on.
    pub fn set_mode(&mut self, mode: ClientMode) {
        self.flush();
        self.mode = mode;
    }

    /// Whether it may do its next step: else a reply is to come first.
    pub fn is_ready(&self) -> bool {
        let waiting = self.sent - self.answered;
        self.mode.window.is_none_or(|window| waiting < u64::from(window.max(1)))
    }

    /// Whether every reply that was asked for has come.
    pub fn is_answered(&self) -> bool {
        self.awaited.is_empty() || self.error.is_some()
    }

    /// Does a step. Should be called only while [`DisplayClient::is_ready`]; the window is exceeded otherwise.
    pub fn perform(&mut self, step: &ClientStep) {
        if let Some(mirror) = &mut self.mirror {
            mirror.perform(step);
        }
        let (request, wants_reply) = match step {
            ClientStep::Add { symbol, item, tail } => {
                return self.add(*symbol, item, tail, self.mode.batch);
            }
            ClientStep::Edit { symbol, index, item, tail } => {
                let item = item.encode();
                let (symbol, index) = (*symbol, *index);
                return self
                    .send(&DisplayRequest::Edit { symbol, index, item: &item, tail }, false);
            }
            ClientStep::Define { symbol } => (DisplayRequest::Define { symbol: *symbol }, false),
            ClientStep::Remove { symbol } => (DisplayRequest::Remove { symbol: *symbol }, false),
            ClientStep::View { view, symbol, size, port } => (
                DisplayRequest::View { view: *view, symbol: *symbol, size: *size, port: *port },
                false,
            ),
            ClientStep::Close { view } => (DisplayRequest::Close { view: *view }, false),
            ClientStep::Display { view, is_whole, is_proved } => {
                (DisplayRequest::Display { view: *view, is_whole: *is_whole }, *is_proved)
            }
            ClientStep::Picture { view } => (DisplayRequest::Picture { view: *view }, true),
        };
        self.send(&request, wants_reply);
    }

    fn add(&mut self, symbol: u32, item: &DisplayItem, tail: &[u8], batch: u32) {
        let is_other = |open: &OpenBatch| open.symbol != symbol;
        let len = |open: &OpenBatch| self.output.len() - open.start + open.tail.len();
        let is_full = |open: &OpenBatch| len(open) + ITEM_LEN + tail.len() > BATCH_BYTES;
        if self.batch.as_ref().is_some_and(|open| is_other(open) || is_full(open)) {
            self.flush();
        }
        if self.batch.is_none() {
            let start = codec::begin(&mut self.output, MessageOpcode::Add, 0, 0);
            self.output.extend(symbol.to_le_bytes());
            self.output.extend([0; 4]);
            self.batch = Some(OpenBatch { symbol, start, count: 0, tail: Vec::new() });
        }
        let open = self.batch.as_mut().expect("opened above");
        let mut item = *item;
        if item.has_tail() {
            item.values[2] += i32::try_from(open.tail.len()).expect("a batch is short");
            open.tail.extend_from_slice(tail);
        }
        self.output.extend_from_slice(&item.encode());
        open.count += 1;
        if open.count >= batch {
            self.flush();
        }
    }

    /// Ends the message that items are collected for.
    pub fn flush(&mut self) {
        let Some(open) = self.batch.take() else { return };
        self.output.extend_from_slice(&open.tail);
        let (sequence, flags) = self.number(false);
        let header = &mut self.output[open.start..];
        header[1] = flags;
        header[2..4].copy_from_slice(&sequence.to_le_bytes());
        header[HEADER_LEN + 4..HEADER_LEN + 8].copy_from_slice(&open.count.to_le_bytes());
        codec::end(&mut self.output, open.start);
    }

    /// Ends what was begun, and sees to it that a reply says when all is done.
    pub fn finish(&mut self) {
        self.flush();
        if self.awaited.back().map_or(self.answered, |number| number + 1) < self.sent {
            self.send(&DisplayRequest::Sync, true);
        }
    }

    /// Items that wait for others to come with them.
    pub fn waiting_items(&self) -> u32 {
        self.batch.as_ref().map_or(0, |batch| batch.count)
    }

    fn send(&mut self, request: &DisplayRequest<'_>, wants_reply: bool) {
        self.flush();
        let (sequence, flags) = self.number(wants_reply);
        request.encode(sequence, flags & REPLY_WANTED != 0, &mut self.output);
    }

    /// The number and the flags of the next message.
    fn number(&mut self, wants_reply: bool) -> (u16, u8) {
        let number = self.sent;
        self.sent += 1;
        self.counts.messages += 1;
        // Half a window after the last one, so that the other half is on its way meanwhile.
        let since = number - self.awaited.back().copied().unwrap_or(self.answered);
        let is_due = self.mode.window.is_some_and(|window| since + 1 >= u64::from(window / 2));
        if !wants_reply && !is_due {
            return (low_bits(number), 0);
        }
        self.awaited.push_back(number);
        (low_bits(number), REPLY_WANTED)
    }

    /// Bytes for the display. Those of items that wait for others are not among them.
    pub fn output(&self) -> &[u8] {
        let end = self.batch.as_ref().map_or(self.output.len(), |batch| batch.start);
        &self.output[..end]
    }

    /// Forgets what [`DisplayClient::output`] gave.
    pub fn clear_output(&mut self) {
        let sent = self.output().len();
        self.counts.bytes_sent += sent as u64;
        if sent == self.output.len() {
            self.output.clear();
        } else {
            self.output.drain(..sent);
        }
        if let Some(batch) = &mut self.batch {
            batch.start = 0;
        }
    }

    /// Notes that the client has nothing to do until a reply comes.
    pub const fn note_wait(&mut self) {
        self.counts.waits += 1;
    }

    /// Takes bytes from the display.
    ///
    /// # Errors
    /// They are no replies, or a message was refused.
    pub fn handle(&mut self, input: &[u8]) -> Result<(), ClientError> {
        self.counts.bytes_received += input.len() as u64;
        let Self { reader, awaited, answered, checksum, items, picture, error, counts, .. } = self;
        let fed = reader.feed(input, |header, body| {
            let Ok(reply) = DisplayReply::decode(header, body) else {
                error.get_or_insert(ClientError::NoReply);
                return false;
            };
            counts.replies += 1;
            match reply {
                DisplayReply::Displayed { checksum: proof, items: drawn, .. } => {
                    (*checksum, *items) = (Some(proof), drawn);
                }
                DisplayReply::Pixels(bytes) => *picture = Some(bytes.to_vec()),
                DisplayReply::Refused(code) => {
                    counts.refused += 1;
                    error.get_or_insert(ClientError::Refused(code));
                }
                DisplayReply::Welcome { .. } | DisplayReply::Done => {}
            }
            // A refusal may be of a message that no reply was asked for.
            if awaited.front().is_some_and(|number| low_bits(*number) == header.sequence) {
                *answered = awaited.pop_front().map_or(*answered, |number| number + 1);
            }
            true
        });
        if fed.is_err() {
            self.error.get_or_insert(ClientError::NoReply);
        }
        self.error.map_or(Ok(()), Err)
    }

    /// Goes on after a message was refused.
    pub(crate) fn forget_refusal(&mut self) {
        self.error.take_if(|error| matches!(error, ClientError::Refused(_)));
    }

    /// Checksum of the frame that was proved last.
    pub const fn checksum(&self) -> Option<u64> {
        self.checksum
    }

    /// Items drawn for it.
    pub const fn items(&self) -> u32 {
        self.items
    }

    /// The picture that came last.
    pub fn take_picture(&mut self) -> Option<Vec<u8>> {
        self.picture.take()
    }

    /// What crossed the connection.
    pub const fn counts(&self) -> ClientCounts {
        self.counts
    }
}

impl SceneMirror {
    /// Does what the display does; what it would refuse is refused here too, and not kept.
    fn perform(&mut self, step: &ClientStep) {
        match step {
            ClientStep::View { view, symbol, size, port } => {
                self.views.insert(*view, (*symbol, *size, *port));
            }
            ClientStep::Close { view } => {
                self.views.remove(view);
            }
            _ => {
                self.scene.apply(step).ok();
            }
        }
    }
}

impl DisplayScene {
    /// Does what a display does for a step; nothing for those of views.
    pub(crate) fn apply(&mut self, step: &ClientStep) -> Result<(), SceneError> {
        match step {
            ClientStep::Define { symbol } => self.define(*symbol)?,
            ClientStep::Add { symbol, item, tail } => {
                self.add(*symbol, std::iter::once(Ok(*item)), tail)?
            }
            ClientStep::Edit { symbol, index, item, tail } => {
                self.edit(*symbol, *index, *item, tail)?
            }
            ClientStep::Remove { symbol } => self.remove(*symbol)?,
            ClientStep::View { .. }
            | ClientStep::Close { .. }
            | ClientStep::Display { .. }
            | ClientStep::Picture { .. } => return Ok(()),
        };
        Ok(())
    }
}

const fn low_bits(number: u64) -> u16 {
    let [low, high, ..] = number.to_le_bytes();
    u16::from_le_bytes([low, high])
}
