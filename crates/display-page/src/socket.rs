//! A client of the display in a browser, over a WebSocket; its connection can be made slower: bytes leave one after the
//! other at a rate and arrive later.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::ws::{Message, WebSocket};
use futures_util::{SinkExt as _, StreamExt as _};
use plumb_clock::{monotonic_ns, sleep_until};
use plumb_display::server::{DisplayLimits, DisplayServer};
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use crate::clients::PresentClient;

/// Bytes of a message, at most.
pub(crate) const MESSAGE_MAX: usize = 1 << 20;
/// Bytes in flight in a direction, at most.
const IN_FLIGHT_MAX: usize = 8 << 20;
/// Between two looks at a client that does nothing.
const OBSERVE_INTERVAL: Duration = Duration::from_millis(250);
/// For how long a browser that does not read is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes in flight, and when they arrive by the steady clock.
type InFlightBytes = (u64, Bytes, OwnedSemaphorePermit);

/// Serves a browser until it goes.
pub(crate) async fn serve(socket: WebSocket, client: PresentClient, limits: DisplayLimits) {
    let (mut sink, mut stream) = socket.split();
    let link = Arc::new(Mutex::new(PageLink::default()));
    let (to_display, from_page) = unbounded_channel::<InFlightBytes>();
    let (to_page, mut from_display) = unbounded_channel::<InFlightBytes>();
    let hello = format!("{{\"client\":{}}}", client.id());
    let display = DisplayThread { link: Arc::clone(&link), to_page, handle: Handle::current() };
    let spawned = thread::Builder::new()
        .name("client".to_owned())
        .spawn(move || display.run(from_page, client, limits));
    if spawned.is_err() || sink.send(Message::Text(hello.into())).await.is_err() {
        return;
    }
    let writing = tokio::spawn(async move {
        while let Some((arrival_ns, bytes, _permit)) = from_display.recv().await {
            // Not for what is due: a timer of tokio's has steps of a millisecond.
            let wait_ns = arrival_ns.saturating_sub(monotonic_ns());
            if wait_ns > 0 {
                sleep(Duration::from_nanos(wait_ns)).await;
            }
            match timeout(PATIENCE, sink.send(Message::Binary(bytes))).await {
                Ok(Ok(())) => {}
                _ => return,
            }
        }
        sink.close().await.ok();
    });
    let (mut up, room) = (LinkDirection::default(), Arc::new(Semaphore::new(IN_FLIGHT_MAX)));
    while let Some(Ok(message)) = stream.next().await {
        match message {
            Message::Binary(bytes) => {
                let Some(permit) = reserve(&room, bytes.len()).await else { break };
                let arrival_ns = up.arrival_ns(current(&link), monotonic_ns(), bytes.len());
                if to_display.send((arrival_ns, bytes, permit)).is_err() {
                    break;
                }
            }
            Message::Text(text) => {
                let Ok(asked) = serde_json::from_str(&text) else { break };
                *link.lock().unwrap_or_else(PoisonError::into_inner) = asked;
            }
            Message::Close(_) => break,
            Message::Ping(_) | Message::Pong(_) => {}
        }
    }
    drop(to_display);
    writing.await.ok();
}

fn current(link: &Mutex<PageLink>) -> PageLink {
    *link.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Room for so many bytes, once there is.
async fn reserve(room: &Arc<Semaphore>, bytes: usize) -> Option<OwnedSemaphorePermit> {
    let bytes = u32::try_from(bytes.min(IN_FLIGHT_MAX)).ok()?;
    Arc::clone(room).acquire_many_owned(bytes).await.ok()
}

/// The display's side, in a thread of its own: drawing for one client keeps no other waiting.
struct DisplayThread {
    link: Arc<Mutex<PageLink>>,
    to_page: UnboundedSender<InFlightBytes>,
    handle: Handle,
}

impl DisplayThread {
    fn run(
        self,
        mut from_page: UnboundedReceiver<InFlightBytes>,
        mut client: PresentClient,
        limits: DisplayLimits,
    ) {
        let mut server = DisplayServer::new(limits);
        let (mut down, room) = (LinkDirection::default(), Arc::new(Semaphore::new(IN_FLIGHT_MAX)));
        while !server.is_closed() {
            let next =
                self.handle.block_on(async { timeout(OBSERVE_INTERVAL, from_page.recv()).await });
            let Ok(next) = next else {
                client.observe(&server);
                continue;
            };
            let Some((arrival_ns, bytes, _permit)) = next else { break };
            sleep_until(arrival_ns);
            let mut input = &bytes[..];
            while !input.is_empty() {
                input = server.handle_some(input);
                client.observe(&server);
                if server.output().is_empty() {
                    continue;
                }
                let reply = Bytes::copy_from_slice(server.output());
                server.clear_output();
                let reserved = self.handle.block_on(async {
                    timeout(PATIENCE, reserve(&room, reply.len())).await.ok().flatten()
                });
                let Some(permit) = reserved else { return client.leave(server.counts(), true) };
                let arrival_ns = down.arrival_ns(current(&self.link), monotonic_ns(), reply.len());
                if self.to_page.send((arrival_ns, reply, permit)).is_err() {
                    return client.leave(server.counts(), false);
                }
            }
        }
        client.leave(server.counts(), false);
    }
}

/// Longest delay each way.
const DELAY_MAX_NS: u64 = 2_000_000_000;
/// Slowest rate, in bits a second.
const RATE_MIN: f64 = 1_200.0;

/// What the page asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageLink {
    /// Milliseconds each way.
    delay_ms: f64,
    /// Bits a second each way; none is as fast as it goes.
    rate: Option<f64>,
}

/// One direction, by the steady clock.
#[derive(Debug, Default)]
pub(crate) struct LinkDirection {
    free_ns: u64,
    last_ns: u64,
}

impl LinkDirection {
    /// When so many bytes that are sent now arrive, after all that were sent before.
    pub(crate) fn arrival_ns(&mut self, link: PageLink, now_ns: u64, bytes: usize) -> u64 {
        let sending = link.rate.map_or(0.0, |rate| bytes as f64 * 8.0 / rate.max(RATE_MIN));
        self.free_ns = self.free_ns.max(now_ns).saturating_add(nanoseconds(sending));
        let delay_ns = nanoseconds(link.delay_ms / 1e3).min(DELAY_MAX_NS);
        self.last_ns = self.last_ns.max(self.free_ns.saturating_add(delay_ns));
        self.last_ns
    }
}

/// Of seconds; none of what is no time.
fn nanoseconds(seconds: f64) -> u64 {
    let span = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn bytes_take_their_time_and_keep_their_order() {
        let mut link = LinkDirection::default();
        let slow = PageLink { delay_ms: 50.0, rate: Some(8_000.0) };
        // A thousand bytes a second.
        assert_eq!(link.arrival_ns(slow, 0, 1_000), 1_050 * MS);
        assert_eq!(link.arrival_ns(slow, 0, 500), 1_550 * MS);
        // Data over a link that became faster does not overtake.
        let fast = PageLink::default();
        assert_eq!(link.arrival_ns(fast, 0, 500), 1_550 * MS);
        assert_eq!(link.arrival_ns(fast, 2_000 * MS, 500), 2_000 * MS);
    }

    #[test]
    fn settings_without_meaning_do_no_harm() {
        for (delay_ms, rate) in [(f64::NAN, Some(f64::NAN)), (-1.0, Some(-1.0)), (1e300, None)] {
            let mut link = LinkDirection::default();
            assert!(link.arrival_ns(PageLink { delay_ms, rate }, 0, 100) <= 2 * DELAY_MAX_NS);
        }
    }
}
