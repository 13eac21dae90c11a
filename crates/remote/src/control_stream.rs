//! A control connection, whatever carries it: two directions, a way to end both, and a name for errors.
//!
//! A thread reads and a thread writes, so that whoever drives a session waits for one thing only and always with
//! a deadline. What is under way is bounded. Left out: TLS, which makes a [`ControlStream`] of its own.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 64 << 10;
/// Events that wait for the driver, and messages that wait for the writer.
const QUEUE_MAX: usize = 64;
/// How long the last words may take to get out.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Something that carries a session.
pub struct ControlStream {
    /// What comes.
    pub reader: Box<dyn Read + Send>,
    /// What goes.
    pub writer: Box<dyn Write + Send>,
    /// Ends both directions; a blocked read or write returns then, if anything can make it.
    pub hang_up: Box<dyn FnMut() + Send>,
    /// Who is at the other end, for errors and logs.
    pub peer: String,
}

impl fmt::Debug for ControlStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl ControlStream {
    /// Plain TCP: for the same host, and for what encrypts by itself.
    ///
    /// # Errors
    /// The kernel's.
    pub fn from_tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let peer = stream.peer_addr()?.to_string();
        let (reader, ending) = (stream.try_clone()?, stream.try_clone()?);
        let hang_up = Box::new(move || drop(ending.shutdown(Shutdown::Both)));
        Ok(Self { reader: Box::new(reader), writer: Box::new(stream), hang_up, peer })
    }

    /// This process's own standard streams, whatever started it.
    pub fn from_stdio() -> Self {
        Self {
            reader: Box::new(io::stdin()),
            writer: Box::new(io::stdout()),
            // Nothing makes a blocked read of standard input return; the process is about to end.
            hang_up: Box::new(|| {}),
            peer: "whoever started it".to_owned(),
        }
    }

    /// The standard streams of a program that was started with both piped.
    ///
    /// # Errors
    /// When they are not pipes.
    pub fn from_child(child: &Arc<Mutex<Child>>, peer: &str) -> io::Result<Self> {
        let missing = || io::Error::other("its standard streams are not pipes");
        let mut lock = child.lock().unwrap_or_else(PoisonError::into_inner);
        let reader: ChildStdout = lock.stdout.take().ok_or_else(missing)?;
        let writer: ChildStdin = lock.stdin.take().ok_or_else(missing)?;
        drop(lock);
        let child = Arc::clone(child);
        let hang_up = Box::new(move || {
            child.lock().unwrap_or_else(PoisonError::into_inner).kill().ok();
        });
        Ok(Self {
            reader: Box::new(reader),
            writer: Box::new(writer),
            hang_up,
            peer: peer.to_owned(),
        })
    }
}

/// Kills a program that was started as the leader of a process group, with everything that is in the group. Not after
/// it was waited for: the number may be another's then.
pub fn kill_group(leader: &Child) {
    // Where there is no such group, there is nothing to end.
    plumb_sys::process::kill_group(leader.id()).ok();
}

/// What happens to a driver: bytes, an end, or something of its own.
#[derive(Debug)]
pub enum ControlEvent<T> {
    /// These bytes came.
    Bytes(Vec<u8>),
    /// Nothing comes any more.
    Closed,
    /// Something else that the driver waits for.
    Local(T),
}

/// A stream with its two threads.
pub struct ControlStreamPump<T> {
    events: Receiver<ControlEvent<T>>,
    event_sender: SyncSender<ControlEvent<T>>,
    outgoing: Option<SyncSender<Vec<u8>>>,
    written: Receiver<()>,
    hang_up: Box<dyn FnMut() + Send>,
    peer: String,
}

impl<T> fmt::Debug for ControlStreamPump<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pump").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl<T: Send + 'static> ControlStreamPump<T> {
    /// Starts the threads.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub fn start(stream: ControlStream) -> io::Result<Self> {
        let ControlStream { mut reader, mut writer, hang_up, peer } = stream;
        let (event_sender, events) = mpsc::sync_channel(QUEUE_MAX);
        let (outgoing, messages) = mpsc::sync_channel::<Vec<u8>>(QUEUE_MAX);
        let (done, written) = mpsc::sync_channel(1);
        let came = event_sender.clone();
        thread::Builder::new().name("control-read".to_owned()).spawn(move || {
            let mut piece = vec![0; PIECE_BYTES];
            loop {
                let event = match reader.read(&mut piece) {
                    Ok(len @ 1..) => ControlEvent::Bytes(piece[..len].to_vec()),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Ok(0) | Err(_) => ControlEvent::Closed,
                };
                let is_end = matches!(event, ControlEvent::Closed);
                if came.send(event).is_err() || is_end {
                    break;
                }
            }
        })?;
        thread::Builder::new().name("control-write".to_owned()).spawn(move || {
            for message in messages {
                // A reader that is gone shows as an end of what it says, too.
                if writer.write_all(&message).and_then(|()| writer.flush()).is_err() {
                    break;
                }
            }
            done.send(()).ok();
        })?;
        Ok(Self { events, event_sender, outgoing: Some(outgoing), written, hang_up, peer })
    }

    /// Who is at the other end.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// For whatever else the driver waits for.
    pub fn sender(&self) -> SyncSender<ControlEvent<T>> {
        self.event_sender.clone()
    }

    /// Has bytes written. False when so much waits to be written that the other side cannot be reading.
    pub fn send(&self, bytes: Vec<u8>) -> bool {
        match self.outgoing.as_ref().map(|outgoing| outgoing.try_send(bytes)) {
            // A broken connection shows as an end by itself.
            Some(Ok(()) | Err(TrySendError::Disconnected(_))) => true,
            Some(Err(TrySendError::Full(_))) | None => false,
        }
    }

    /// The next event; none when none came in time.
    pub fn wait(&self, timeout: Duration) -> Option<ControlEvent<T>> {
        // The pump holds a sender itself, so the channel does not end.
        self.events.recv_timeout(timeout).ok()
    }

    /// Lets the last words out, then ends the connection.
    pub fn close(mut self) {
        self.outgoing = None;
        self.written.recv_timeout(CLOSE_TIMEOUT).ok();
        // Dropping does the rest.
    }
}

impl<T> Drop for ControlStreamPump<T> {
    fn drop(&mut self) {
        (self.hang_up)();
    }
}
