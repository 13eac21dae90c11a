//! Who draws on a display now, what each has drawn last, and what all did.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plumb_clock::monotonic_ns;
use plumb_display::frame::encode_png;
use plumb_display::server::{DisplayCounts, DisplayServer};
use serde::Serialize;

/// Pictures are made for so long after somebody looked.
const WATCHED_NS: u64 = 3_000_000_000;
/// Between two pictures of a client, at least.
const PICTURE_INTERVAL_NS: u64 = 100_000_000;

/// What all clients of a display did.
#[derive(Clone, Debug, Default)]
pub struct ServedTotal {
    /// Clients.
    pub clients: u64,
    /// Those whose connection broke.
    pub broken: u64,
    /// What they did.
    pub counts: DisplayCounts,
}

/// The clients of a display.
#[derive(Debug)]
pub struct DisplayClients {
    clients_max: usize,
    /// Until when somebody is taken to look, by the steady clock.
    watched_until_ns: AtomicU64,
    state: Mutex<ClientsState>,
}

#[derive(Debug, Default)]
struct ClientsState {
    present: BTreeMap<u64, ClientState>,
    total: ServedTotal,
}

#[derive(Debug)]
struct ClientState {
    name: String,
    counts: DisplayCounts,
    picture: Option<Arc<[u8]>>,
}

/// A client as the page lists it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ClientEntry {
    id: u64,
    name: String,
    messages: u64,
    items: u64,
    frames: u64,
    has_picture: bool,
}

/// A client's place, for as long as it is there.
#[derive(Debug)]
pub struct PresentClient {
    clients: Arc<DisplayClients>,
    id: u64,
    /// When its picture may be made again.
    picture_due_ns: u64,
    frames: u64,
    is_broken: bool,
}

impl DisplayClients {
    /// For so many clients at a time.
    pub fn new(clients_max: u32) -> Arc<Self> {
        Arc::new(Self {
            clients_max: usize::try_from(clients_max).unwrap_or(usize::MAX),
            watched_until_ns: AtomicU64::new(0),
            state: Mutex::default(),
        })
    }

    /// A place for one more; none where all are taken.
    pub fn admit(self: &Arc<Self>, name: &str) -> Option<PresentClient> {
        let mut state = self.state();
        if state.present.len() >= self.clients_max {
            return None;
        }
        state.total.clients += 1;
        let id = state.total.clients;
        let counts = DisplayCounts::default();
        let client = ClientState { name: name.to_owned(), counts, picture: None };
        state.present.insert(id, client);
        let clients = Arc::clone(self);
        Some(PresentClient { clients, id, picture_due_ns: 0, frames: 0, is_broken: false })
    }

    /// How many are there.
    pub fn present(&self) -> usize {
        self.state().present.len()
    }

    /// What those that left did.
    pub fn total(&self) -> ServedTotal {
        self.state().total.clone()
    }

    /// Those who are there. Their pictures are made from now on for a while.
    pub(crate) fn list(&self) -> Vec<ClientEntry> {
        self.watched_until_ns.store(monotonic_ns() + WATCHED_NS, Ordering::Relaxed);
        let state = self.state();
        let entry = |(&id, client): (&u64, &ClientState)| ClientEntry {
            id,
            name: client.name.clone(),
            messages: client.counts.messages,
            items: client.counts.items,
            frames: client.counts.frames,
            has_picture: client.picture.is_some(),
        };
        state.present.iter().map(entry).collect()
    }

    /// What a client has drawn last, as a PNG file.
    pub(crate) fn picture(&self, id: u64) -> Option<Arc<[u8]>> {
        self.state().present.get(&id)?.picture.clone()
    }

    fn state(&self) -> MutexGuard<'_, ClientsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PresentClient {
    /// Its number.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Notes what it did so far, and its picture where somebody looks.
    pub fn observe(&mut self, server: &DisplayServer) {
        let watched_until_ns = self.clients.watched_until_ns.load(Ordering::Relaxed);
        // Where nobody ever looked, no clock is read.
        if watched_until_ns == 0 {
            return;
        }
        let now_ns = monotonic_ns();
        if now_ns < self.picture_due_ns || now_ns >= watched_until_ns {
            return;
        }
        self.picture_due_ns = now_ns + PICTURE_INTERVAL_NS;
        let counts = server.counts().clone();
        let is_new = counts.frames > self.frames;
        self.frames = counts.frames;
        let picture = server.shown().filter(|_| is_new).map(|frame| encode_png(frame).into());
        if let Some(client) = self.clients.state().present.get_mut(&self.id) {
            client.counts = counts;
            client.picture = picture.or(client.picture.take());
        }
    }

    /// It leaves, having done this.
    pub fn leave(mut self, counts: &DisplayCounts, is_broken: bool) {
        self.is_broken = is_broken;
        self.clients.state().total.counts.add(counts);
    }
}

impl Drop for PresentClient {
    fn drop(&mut self) {
        let mut state = self.clients.state();
        state.present.remove(&self.id);
        state.total.broken += u64::from(self.is_broken);
    }
}
