//! An agent that represents applications to a display: it keeps what each draws, and forwards what has changed since it was shown.
//!
//! After the classes C to E of Lantz, Nowicki & Theimer (1985, §2.4). Applications speak the display's protocol to the agent; it has one
//! connection to the display, in which each application has symbols and views of its own. One that draws everything anew costs the display
//! only its differences.

use std::collections::{BTreeMap, BTreeSet};

use crate::client::{ClientError, ClientMode, ClientStep};
use crate::codec::MessageReader;
use crate::item::{DisplayItem, ITEM_LEN, ItemKind};
use crate::message::{
    BODY_MIN, DisplayReply, DisplayRequest, MessageHeader, REPLY_WANTED, RefusalCode, VERSION,
};
use crate::scene::{DisplayScene, SceneError, SceneLimits};
use crate::transport::{DisplayConnection, DisplayTransport, DriveError};

/// Applications at a time, which share the symbols and views that a display has for a client.
pub const APPLICATIONS: u32 = 16;
/// Symbols of an application.
const SYMBOLS: u32 = (1 << 16) / APPLICATIONS;
/// Views of an application.
const VIEWS: u32 = 64 / APPLICATIONS;
/// Bytes of replies that an application has not taken, before its messages wait: a short request may have a picture as its reply.
const REPLIES: usize = 1 << 20;
/// Bytes written to the display at once.
const WRITE: usize = 32 << 10;

/// What a display did with steps that were forwarded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardOutcome {
    /// Items drawn for the last frame.
    pub items: u32,
    /// Its checksum.
    pub checksum: u64,
    /// The picture that was asked for.
    pub picture: Option<Vec<u8>>,
}

/// Performs steps at a display.
pub type ForwardSteps<'a> = dyn FnMut(&[ClientStep]) -> Result<ForwardOutcome, DriveError> + 'a;

/// What is said to a request that the display is not asked about.
fn own_reply(request: &DisplayRequest<'_>) -> DisplayReply<'static> {
    let body_max = u32::try_from(BODY_MIN).unwrap_or(u32::MAX);
    match request {
        DisplayRequest::Hello { .. } => DisplayReply::Welcome { version: VERSION, body_max },
        _ => DisplayReply::Done,
    }
}

impl<T: DisplayTransport> DisplayConnection<T> {
    /// Performs steps for a session of an agent. A display that refuses one goes on with what comes later.
    ///
    /// # Errors
    /// The display refuses a step, or is gone.
    pub fn forward(&mut self, steps: &[ClientStep]) -> Result<ForwardOutcome, DriveError> {
        let done = self.perform(steps, ClientMode::BATCHED, WRITE);
        if let Err(DriveError::Client(ClientError::Refused(code))) = &done
            && !code.is_final()
        {
            self.recover()?;
        }
        done?;
        Ok(ForwardOutcome {
            items: self.client.items(),
            checksum: self.client.checksum().unwrap_or_default(),
            picture: self.client.take_picture(),
        })
    }
}

/// One application's connection to the agent.
#[derive(Debug)]
pub struct AgentSession {
    reader: MessageReader,
    /// Its place among the applications.
    place: u32,
    is_greeted: bool,
    is_closed: bool,
    output: Vec<u8>,
    /// What the application has drawn, and what of it the display has.
    wanted: DisplayScene,
    shown: DisplayScene,
    /// Whether the display has that: it may have refused a part.
    is_known: bool,
    /// Symbols that may differ, and those that the display may have.
    changed: BTreeSet<u32>,
    told: BTreeSet<u32>,
    views: BTreeMap<u32, AgentView>,
}

/// A view of an application.
#[derive(Debug)]
struct AgentView {
    /// The application's number of what it shows.
    symbol: u32,
    /// What makes it at the display.
    step: ClientStep,
    /// Whether the display has one of this number, and whether it is this one.
    is_told: bool,
    is_current: bool,
}

impl AgentSession {
    /// For a new connection of the application at this place, whose drawings may take so much memory.
    pub fn new(place: u32, memory: usize) -> Self {
        // It is kept twice.
        let limits = SceneLimits { memory: memory / 2, symbols: SYMBOLS };
        Self {
            reader: MessageReader::new(BODY_MIN),
            place,
            is_greeted: false,
            is_closed: false,
            output: Vec::new(),
            wanted: DisplayScene::new(limits),
            shown: DisplayScene::new(limits),
            is_known: true,
            changed: BTreeSet::new(),
            told: BTreeSet::new(),
            views: BTreeMap::new(),
        }
    }

    /// Takes bytes from the application until there is enough for it to take; what is left. `forward` performs steps at the display.
    ///
    /// # Errors
    /// The display is gone: nothing more can be forwarded.
    pub fn handle<'a>(
        &mut self,
        input: &'a [u8],
        forward: &mut ForwardSteps<'_>,
    ) -> Result<&'a [u8], DriveError> {
        if self.is_closed {
            return Ok(&[]);
        }
        let mut reader = std::mem::replace(&mut self.reader, MessageReader::new(BODY_MIN));
        let mut failed = None;
        let fed = reader.feed(input, |header, body| {
            failed = self.handle_message(header, body, forward).err();
            failed.is_none() && !self.is_closed && self.output.len() < REPLIES
        });
        let left = fed.unwrap_or_else(|_| {
            self.refuse(0, RefusalCode::Length);
            &[]
        });
        self.reader = reader;
        failed.map_or(Ok(left), Err)
    }

    /// Bytes for the application.
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// Forgets what [`AgentSession::output`] gave.
    pub fn clear_output(&mut self) {
        self.output.clear();
    }

    /// Whether the connection is to be closed, once the output is sent.
    pub const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Bytes that its drawings take.
    pub const fn memory(&self) -> usize {
        self.wanted.memory() + self.shown.memory()
    }

    /// What removes everything of it from the display.
    pub fn leave(&self) -> Vec<ClientStep> {
        let open = self.views.iter().filter(|(_, view)| view.is_told);
        let views = open.map(|(view, _)| ClientStep::Close { view: self.view(*view) });
        views.chain(self.emptied()).collect()
    }

    /// What removes every symbol that the display may have.
    fn emptied(&self) -> Vec<ClientStep> {
        let symbols = || self.told.iter().map(|symbol| self.symbol(*symbol));
        // Without items none calls another; and each is there.
        let emptied = symbols().map(|symbol| ClientStep::Define { symbol });
        emptied.chain(symbols().map(|symbol| ClientStep::Remove { symbol })).collect()
    }

    fn symbol(&self, symbol: u32) -> u32 {
        self.place * SYMBOLS + symbol
    }

    fn view(&self, view: u32) -> u32 {
        self.place * VIEWS + view
    }

    fn refuse(&mut self, sequence: u16, code: RefusalCode) {
        let code = if self.is_greeted { code } else { RefusalCode::Greeting.min(code) };
        DisplayReply::Refused(code).encode(sequence, &mut self.output);
        self.is_closed |= code.is_final();
    }

    fn handle_message(
        &mut self,
        header: MessageHeader,
        body: &[u8],
        forward: &mut ForwardSteps<'_>,
    ) -> Result<(), DriveError> {
        let wants_reply = header.flags & REPLY_WANTED != 0;
        let request = match DisplayRequest::decode(header, body) {
            Ok(request) => request,
            Err(code) => {
                self.refuse(header.sequence, code);
                return Ok(());
            }
        };
        let steps = match self.perform(&request) {
            Ok(None) => {
                if wants_reply {
                    own_reply(&request).encode(header.sequence, &mut self.output);
                }
                return Ok(());
            }
            Ok(Some(steps)) => steps,
            Err(code) => {
                self.refuse(header.sequence, code);
                return Ok(());
            }
        };
        let passed = match forward(&steps) {
            Ok(passed) => passed,
            Err(DriveError::Client(ClientError::Refused(code))) if !code.is_final() => {
                self.is_known = false;
                self.forget_view(&request, forward)?;
                self.refuse(header.sequence, code);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if self.is_known {
            self.told = self.shown.symbol_ids().collect();
        }
        let reply = match (request, &passed.picture) {
            (DisplayRequest::Picture { .. }, Some(picture)) => DisplayReply::Pixels(picture),
            (DisplayRequest::Display { view, .. }, _) if wants_reply => {
                DisplayReply::Displayed { view, items: passed.items, checksum: passed.checksum }
            }
            _ => return Ok(()),
        };
        reply.encode(header.sequence, &mut self.output);
        Ok(())
    }

    /// After a refusal the display has no view of the number that was to be drawn.
    fn forget_view(
        &mut self,
        request: &DisplayRequest<'_>,
        forward: &mut ForwardSteps<'_>,
    ) -> Result<(), DriveError> {
        let (DisplayRequest::Display { view, .. } | DisplayRequest::Picture { view }) = request
        else {
            return Ok(());
        };
        match forward(&[ClientStep::Close { view: self.view(*view) }]) {
            Ok(_) | Err(DriveError::Client(ClientError::Refused(_))) => {}
            Err(error) => return Err(error),
        }
        if let Some(view) = self.views.get_mut(view) {
            (view.is_told, view.is_current) = (false, false);
        }
        Ok(())
    }

    /// Carries out a request; what the display is to do for it.
    fn perform(
        &mut self,
        request: &DisplayRequest<'_>,
    ) -> Result<Option<Vec<ClientStep>>, RefusalCode> {
        if let DisplayRequest::Hello { version } = request {
            self.is_greeted = *version == VERSION;
            return if self.is_greeted { Ok(None) } else { Err(RefusalCode::Version) };
        }
        if !self.is_greeted {
            return Err(RefusalCode::Greeting);
        }
        let change = match *request {
            DisplayRequest::Hello { .. } | DisplayRequest::Sync => return Ok(None),
            DisplayRequest::Define { symbol } => self.wanted.define(symbol)?,
            DisplayRequest::Add { symbol, items, tail } => {
                let items = items.as_chunks::<ITEM_LEN>().0;
                let decoded = items.iter().map(|item| DisplayItem::decode(item, tail));
                self.wanted.add(symbol, decoded, tail)?
            }
            DisplayRequest::Edit { symbol, index, item, tail } => {
                self.wanted.edit(symbol, index, DisplayItem::decode(item, tail)?, tail)?
            }
            DisplayRequest::Remove { symbol } => self.wanted.remove(symbol)?,
            DisplayRequest::View { view, symbol, size, port } => {
                if view >= VIEWS {
                    return Err(RefusalCode::Memory);
                }
                self.wanted.symbol(symbol).ok_or(RefusalCode::UnknownSymbol)?;
                let (number, forwarded) = (self.view(view), self.symbol(symbol));
                let step = ClientStep::View { view: number, symbol: forwarded, size, port };
                let is_told = self.views.get(&view).is_some_and(|known| known.is_told);
                self.views.insert(view, AgentView { symbol, step, is_told, is_current: false });
                return Ok(None);
            }
            DisplayRequest::Close { view } => {
                let closed = self.views.remove(&view).ok_or(RefusalCode::UnknownView)?;
                let number = self.view(view);
                return Ok(closed.is_told.then(|| vec![ClientStep::Close { view: number }]));
            }
            DisplayRequest::Display { view, is_whole } => {
                let mut steps = self.differences_for(view)?;
                let view = self.view(view);
                steps.push(ClientStep::Display { view, is_whole, is_proved: true });
                return Ok(Some(steps));
            }
            DisplayRequest::Picture { view } => {
                // The display may not have the view yet; what changed is not drawn by this.
                let mut steps = self.differences_for(view)?;
                steps.push(ClientStep::Picture { view: self.view(view) });
                return Ok(Some(steps));
            }
        };
        self.changed.insert(change.symbol);
        Ok(None)
    }

    /// What makes the display's scene the application's, and one of its views; it is taken to have been done.
    fn differences_for(&mut self, view: u32) -> Result<Vec<ClientStep>, RefusalCode> {
        if !self.views.contains_key(&view) {
            return Err(RefusalCode::UnknownView);
        }
        let mut steps = self.differences()?;
        let known = self.views.get_mut(&view).expect("it was found");
        if !known.is_current {
            let ClientStep::View { symbol, .. } = known.step else {
                unreachable!("it makes a view")
            };
            // Of a symbol that was removed since a display goes on to show nothing.
            let is_gone = self.wanted.symbol(known.symbol).is_none();
            steps.extend(is_gone.then_some(ClientStep::Define { symbol }));
            steps.push(known.step.clone());
            steps.extend(is_gone.then_some(ClientStep::Remove { symbol }));
            (known.is_told, known.is_current) = (true, true);
        }
        Ok(steps)
    }

    fn differences(&mut self) -> Result<Vec<ClientStep>, RefusalCode> {
        // Called symbols come before their callers, so that each change is possible when it is made, but for calls that are nested too deep
        // before others are removed: then all is made anew.
        let mut steps = Vec::new();
        if !self.is_known || self.update(&mut steps).is_err() {
            self.is_known = false;
            steps = self.emptied();
            self.shown = DisplayScene::new(self.shown.limits());
            self.changed.extend(self.wanted.symbol_ids());
            self.update(&mut steps)?;
        }
        self.is_known = true;
        self.changed.clear();
        Ok(steps)
    }

    fn update(&mut self, steps: &mut Vec<ClientStep>) -> Result<(), SceneError> {
        let order = self.wanted.symbols_from_below();
        for id in order.into_iter().filter(|id| self.changed.contains(id)) {
            for step in self.changes_of(id) {
                self.shown.apply(&step)?;
                self.told.insert(id);
                steps.push(self.as_forwarded(step));
            }
        }
        let is_gone = |id: &u32| self.wanted.symbol(*id).is_none();
        let gone: Vec<u32> =
            self.shown.symbols_from_below().into_iter().rev().filter(is_gone).collect();
        for id in gone {
            self.shown.remove(id)?;
            steps.push(ClientStep::Remove { symbol: self.symbol(id) });
        }
        Ok(())
    }

    /// What makes one symbol what it is to be.
    fn changes_of(&self, id: u32) -> Vec<ClientStep> {
        let Some(wanted) = self.wanted.symbol(id) else { return Vec::new() };
        let shown = self.shown.symbol(id).filter(|it| it.items().len() <= wanted.items().len());
        let mut steps = Vec::new();
        if shown.is_none() {
            steps.push(ClientStep::Define { symbol: id });
        }
        let known = shown.map_or(&[][..], |shown| shown.items());
        for (index, item) in wanted.items().iter().enumerate() {
            let (item, tail) = item.with_tail(wanted.tail());
            let before = known.get(index).zip(shown).map(|(old, it)| old.with_tail(it.tail()));
            if before == Some((item, tail)) {
                continue;
            }
            let tail = tail.to_vec();
            let index = u32::try_from(index).expect("fewer than 2^32 items");
            steps.push(match before {
                Some(_) => ClientStep::Edit { symbol: id, index, item, tail },
                None => ClientStep::Add { symbol: id, item, tail },
            });
        }
        steps
    }

    /// A step with the display's numbers.
    fn as_forwarded(&self, mut step: ClientStep) -> ClientStep {
        if let ClientStep::Define { symbol }
        | ClientStep::Add { symbol, .. }
        | ClientStep::Edit { symbol, .. } = &mut step
        {
            *symbol = self.symbol(*symbol);
        }
        if let ClientStep::Add { item, .. } | ClientStep::Edit { item, .. } = &mut step
            && item.kind == ItemKind::Call
        {
            let called = self.symbol(item.called().unwrap_or_default());
            item.values[2] = i32::try_from(called).unwrap_or(i32::MAX);
        }
        step
    }
}
