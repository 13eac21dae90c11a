//! A display's side of one connection, as a machine: bytes in, bytes out. Each client has a scene and views of its own.

use std::collections::BTreeMap;

use crate::codec::MessageReader;
use crate::frame::{self, DisplayFrame};
use crate::item::{DisplayItem, ITEM_LEN};
use crate::message::{
    BODY_MIN, DisplayReply, DisplayRequest, MessageHeader, REPLY_WANTED, RefusalCode, VERSION,
};
use crate::render::LineCoding;
use crate::scene::{DisplayScene, SceneChange, SceneLimits};
use crate::view::DisplayView;

/// What one client may use of a display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DisplayLimits {
    /// Of its scene.
    pub scene: SceneLimits,
    /// Bytes of a message's body; [`BODY_MIN`] at least.
    pub body: u32,
    /// Bytes of all its frames.
    pub frames: usize,
    /// Views.
    pub views: usize,
    /// Items and words of eight pixels drawn for one frame.
    pub work: u64,
    /// Messages refused before the connection is closed.
    pub refusals: u64,
    /// Bytes of replies that the client has not taken, before its messages wait.
    pub replies: usize,
    /// How its lines are drawn.
    pub lines: LineCoding,
}

impl Default for DisplayLimits {
    fn default() -> Self {
        Self {
            scene: SceneLimits::default(),
            body: 1 << 20,
            frames: 64 << 20,
            views: 64,
            work: 1 << 30,
            refusals: 10_000,
            replies: 1 << 20,
            lines: LineCoding::Tuned,
        }
    }
}

/// What a client did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DisplayCounts {
    /// Messages read.
    pub messages: u64,
    /// Items read.
    pub items: u64,
    /// Frames drawn.
    pub frames: u64,
    /// Messages refused, by why.
    pub refused: BTreeMap<RefusalCode, u64>,
}

impl DisplayCounts {
    /// Adds what another client did.
    pub fn add(&mut self, other: &Self) {
        self.messages += other.messages;
        self.items += other.items;
        self.frames += other.frames;
        for (code, count) in &other.refused {
            *self.refused.entry(*code).or_insert(0) += count;
        }
    }
}

/// A display's side of one connection.
#[derive(Debug)]
pub struct DisplayServer {
    reader: MessageReader,
    session: DisplaySession,
}

/// All but the reader, which messages are borrowed from.
#[derive(Debug)]
struct DisplaySession {
    limits: DisplayLimits,
    scene: DisplayScene,
    views: BTreeMap<u32, DisplayView>,
    /// The view that was drawn last.
    shown: Option<u32>,
    frames: usize,
    is_greeted: bool,
    is_closed: bool,
    output: Vec<u8>,
    counts: DisplayCounts,
}

impl DisplayServer {
    /// For a new connection.
    pub fn new(limits: DisplayLimits) -> Self {
        let body = limits.body.max(u32::try_from(BODY_MIN).unwrap_or(u32::MAX));
        Self {
            reader: MessageReader::new(body as usize),
            session: DisplaySession {
                limits: DisplayLimits { body, ..limits },
                scene: DisplayScene::new(limits.scene),
                views: BTreeMap::new(),
                shown: None,
                frames: 0,
                is_greeted: false,
                is_closed: false,
                output: Vec::new(),
                counts: DisplayCounts::default(),
            },
        }
    }

    /// Takes bytes from the client. Nothing happens once it is closed. Replies are not limited: for a client that is trusted to take them.
    pub fn handle(&mut self, mut input: &[u8]) {
        while !input.is_empty() {
            input = self.feed(input, usize::MAX);
        }
    }

    /// Takes bytes from the client until [`DisplayServer::is_full`]; what is left waits until its replies are taken. A short request may
    /// have a long reply, so that what is read at once does not limit what it is answered with.
    pub fn handle_some<'a>(&mut self, input: &'a [u8]) -> &'a [u8] {
        self.feed(input, self.session.limits.replies)
    }

    /// Takes bytes until there are so many for the client; what is left.
    fn feed<'a>(&mut self, input: &'a [u8], replies: usize) -> &'a [u8] {
        let session = &mut self.session;
        if session.is_closed {
            return &[];
        }
        let fed = self.reader.feed(input, |header, body| {
            session.handle_message(header, body);
            !session.is_closed && session.output.len() < replies
        });
        fed.unwrap_or_else(|_| {
            session.refuse(0, RefusalCode::Length);
            &[]
        })
    }

    /// Bytes for the client.
    pub fn output(&self) -> &[u8] {
        &self.session.output
    }

    /// Forgets what [`DisplayServer::output`] gave.
    pub fn clear_output(&mut self) {
        self.session.output.clear();
    }

    /// Whether replies wait to be taken that are so long that no more should be read.
    pub fn is_full(&self) -> bool {
        self.session.output.len() >= self.session.limits.replies
    }

    /// Whether the connection is to be closed, once the output is sent.
    pub const fn is_closed(&self) -> bool {
        self.session.is_closed
    }

    /// What the client did.
    pub const fn counts(&self) -> &DisplayCounts {
        &self.session.counts
    }

    /// Its scene.
    pub const fn scene(&self) -> &DisplayScene {
        &self.session.scene
    }

    /// The frame that was drawn last, while its view is there.
    pub fn shown(&self) -> Option<&DisplayFrame> {
        let view = self.session.views.get(&self.session.shown?)?;
        Some(view.frame())
    }

    /// Bytes that its scene and its frames take.
    pub const fn memory(&self) -> usize {
        self.session.scene.memory() + self.session.frames
    }
}

impl DisplaySession {
    fn handle_message(&mut self, header: MessageHeader, body: &[u8]) {
        self.counts.messages += 1;
        let result =
            DisplayRequest::decode(header, body).and_then(|request| self.perform(header, &request));
        match result {
            Ok(has_replied) => {
                if header.flags & REPLY_WANTED != 0 && !has_replied {
                    DisplayReply::Done.encode(header.sequence, &mut self.output);
                }
            }
            Err(code) => self.refuse(header.sequence, code),
        }
    }

    fn refuse(&mut self, sequence: u16, code: RefusalCode) {
        let code = if self.is_greeted { code } else { RefusalCode::Greeting.min(code) };
        DisplayReply::Refused(code).encode(sequence, &mut self.output);
        *self.counts.refused.entry(code).or_insert(0) += 1;
        self.is_closed |= code.is_final();
        if self.counts.refused.values().sum::<u64>() >= self.limits.refusals && !self.is_closed {
            DisplayReply::Refused(RefusalCode::Refusals).encode(sequence, &mut self.output);
            self.is_closed = true;
        }
    }

    /// Carries out a request; whether it has replied.
    fn perform(
        &mut self,
        header: MessageHeader,
        request: &DisplayRequest<'_>,
    ) -> Result<bool, RefusalCode> {
        let sequence = header.sequence;
        if let DisplayRequest::Hello { version } = request {
            return self.greet(sequence, *version).map(|()| true);
        }
        if !self.is_greeted {
            return Err(RefusalCode::Greeting);
        }
        match *request {
            DisplayRequest::Hello { .. } | DisplayRequest::Sync => {}
            DisplayRequest::Define { symbol } => {
                let change = self.scene.define(symbol)?;
                self.note(&change);
            }
            DisplayRequest::Add { symbol, items, tail } => {
                let items = items.as_chunks::<ITEM_LEN>().0;
                let decoded = items.iter().map(|item| DisplayItem::decode(item, tail));
                let change = self.scene.add(symbol, decoded, tail)?;
                self.counts.items += items.len() as u64;
                self.note(&change);
            }
            DisplayRequest::Edit { symbol, index, item, tail } => {
                let item = DisplayItem::decode(item, tail)?;
                let change = self.scene.edit(symbol, index, item, tail)?;
                self.counts.items += 1;
                self.note(&change);
            }
            DisplayRequest::Remove { symbol } => {
                let change = self.scene.remove(symbol)?;
                self.note(&change);
            }
            DisplayRequest::View { view, symbol, size, port } => {
                self.close(view, Some((size, symbol)))?;
                if let Some(known) = self.views.get_mut(&view) {
                    known.show(symbol, port);
                } else {
                    self.frames += DisplayFrame::bytes(size.0, size.1);
                    let lines = self.limits.lines;
                    self.views.insert(view, DisplayView::new(symbol, port, size, lines));
                }
            }
            DisplayRequest::Close { view } => {
                if !self.views.contains_key(&view) {
                    return Err(RefusalCode::UnknownView);
                }
                self.close(view, None)?;
            }
            DisplayRequest::Display { view, is_whole } => {
                let proof = (header.flags & REPLY_WANTED != 0).then_some(sequence);
                return self.display(proof, view, is_whole).map(|()| true);
            }
            DisplayRequest::Picture { view } => {
                let view = self.views.get(&view).ok_or(RefusalCode::UnknownView)?;
                let file = frame::encode_png(view.frame());
                DisplayReply::Pixels(&file).encode(sequence, &mut self.output);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn greet(&mut self, sequence: u16, version: u16) -> Result<(), RefusalCode> {
        if version != VERSION {
            return Err(RefusalCode::Version);
        }
        self.is_greeted = true;
        let welcome = DisplayReply::Welcome { version: VERSION, body_max: self.limits.body };
        welcome.encode(sequence, &mut self.output);
        Ok(())
    }

    /// Removes a view that is to become one of another size, or none; room for the new one is there.
    fn close(&mut self, view: u32, new: Option<((u16, u16), u32)>) -> Result<(), RefusalCode> {
        let bytes = |frame: &DisplayFrame| DisplayFrame::bytes(frame.width(), frame.height());
        let old = self.views.get(&view).map(DisplayView::frame);
        let freed = old.map_or(0, bytes);
        if let Some((size, symbol)) = new {
            if self.scene.symbol(symbol).is_none() {
                return Err(RefusalCode::UnknownSymbol);
            }
            if old.is_some_and(|frame| (frame.width(), frame.height()) == size) {
                return Ok(());
            }
            let needed = self.frames - freed + DisplayFrame::bytes(size.0, size.1);
            let has_room = old.is_some() || self.views.len() < self.limits.views;
            if !has_room || needed > self.limits.frames {
                return Err(RefusalCode::Memory);
            }
        }
        self.frames -= freed;
        self.views.remove(&view);
        Ok(())
    }

    /// Draws a view; proves it where a message asks for that.
    fn display(
        &mut self,
        proof: Option<u16>,
        view: u32,
        is_whole: bool,
    ) -> Result<(), RefusalCode> {
        let shown = self.views.get_mut(&view).ok_or(RefusalCode::UnknownView)?;
        if is_whole {
            shown.damage_all();
        }
        let items = shown.paint(&mut self.scene, self.limits.work)?;
        self.counts.frames += 1;
        self.shown = Some(view);
        if let Some(sequence) = proof {
            let items = u32::try_from(items).unwrap_or(u32::MAX);
            let displayed = DisplayReply::Displayed { view, items, checksum: shown.checksum() };
            displayed.encode(sequence, &mut self.output);
        }
        Ok(())
    }

    fn note(&mut self, change: &SceneChange) {
        for view in self.views.values_mut() {
            view.note(&self.scene, change);
        }
    }
}
