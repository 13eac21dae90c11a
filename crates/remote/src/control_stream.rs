//! A control connection, whatever carries it: two directions, a way to end both, and a name for errors; and a command
//! whose standard streams carry one.
//!
//! A thread reads and a thread writes, so that whoever drives a session waits for one thing only and always with
//! a deadline. What is under way is bounded.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
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
/// Most bytes that are kept.
const TAIL_BYTES_MAX: usize = 4 << 10;
/// How long its last words are waited for.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Something that carries a session.
pub struct ControlStream {
    /// What comes.
    pub reader: Box<dyn Read + Send>,
    /// The sending direction.
    pub writer: Box<dyn Write + Send>,
    /// Ends both directions; a blocked read or write returns then, if anything can make it.
    pub hang_up: Box<dyn FnMut() + Send>,
    /// Who is at the other end, for errors and logs.
    pub peer: String,
}

impl fmt::Debug for ControlStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlStream").field("peer", &self.peer).finish_non_exhaustive()
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
pub struct StreamPump<T> {
    events: Receiver<ControlEvent<T>>,
    event_sender: SyncSender<ControlEvent<T>>,
    outgoing: Option<SyncSender<Vec<u8>>>,
    written: Receiver<()>,
    hang_up: Box<dyn FnMut() + Send>,
    peer: String,
}

impl<T> fmt::Debug for StreamPump<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamPump").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl<T: Send + 'static> StreamPump<T> {
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

impl<T> Drop for StreamPump<T> {
    fn drop(&mut self) {
        (self.hang_up)();
    }
}

/// A command that leads to an agent; killed when dropped.
#[derive(Debug)]
pub struct AgentChildProcess {
    child: Arc<Mutex<Child>>,
    /// Whether it leads a process group; ssh stays in plumb's, where it may ask for a password.
    leads_group: bool,
    stderr: StderrTail,
    /// Hung up once nothing more comes from there.
    pub stdout: OwnedFd,
    is_ended: bool,
}

impl AgentChildProcess {
    /// Starts a command, in a process group of its own or in this one; and what carries the session.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(
        mut command: Command,
        leads_group: bool,
        peer: &str,
    ) -> io::Result<(Self, ControlStream)> {
        if leads_group {
            command.process_group(0);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let stderr = StderrTail::capture(child.stderr.take());
        let missing = || io::Error::other("its standard streams are not pipes");
        let (Some(reader), Some(writer)) = (child.stdout.take(), child.stdin.take()) else {
            return Err(missing());
        };
        let stdout = reader.as_fd().try_clone_to_owned()?;
        let child = Arc::new(Mutex::new(child));
        let ending = Arc::clone(&child);
        let stream = ControlStream {
            reader: Box::new(reader),
            writer: Box::new(writer),
            hang_up: Box::new(move || {
                ending.lock().unwrap_or_else(PoisonError::into_inner).kill().ok();
            }),
            peer: peer.to_owned(),
        };
        Ok((Self { child, leads_group, stderr, stdout, is_ended: false }, stream))
    }

    /// How it ended and what it said; ends it, and whatever it has started in its group, if it has not.
    pub fn end(&mut self) -> (Option<ExitStatus>, String) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if self.leads_group && !self.is_ended {
            // Where there is no such group, there is nothing to end.
            plumb_sys::process::kill_group(child.id()).ok();
        }
        self.is_ended = true;
        child.kill().ok();
        let status = child.wait().ok();
        drop(child);
        (status, self.stderr.finish())
    }
}

impl Drop for AgentChildProcess {
    fn drop(&mut self) {
        if !self.is_ended {
            self.end();
        }
    }
}

/// The end of what a command writes to standard error, which is read all the while so that it is never kept from
/// writing more.
#[derive(Debug)]
pub struct StderrTail {
    text: Arc<Mutex<Vec<u8>>>,
    /// Closed at its end.
    closed: Receiver<()>,
}

impl StderrTail {
    /// Listens to a command's standard error, if there is one, in a thread of its own.
    pub fn capture(stderr: Option<impl Read + Send + 'static>) -> Self {
        let text = Arc::<Mutex<Vec<u8>>>::default();
        let (open, over) = mpsc::sync_channel(0);
        if let Some(stderr) = stderr {
            let kept = Arc::clone(&text);
            thread::spawn(move || {
                keep(stderr, &kept);
                drop(open);
            });
        }
        Self { text, closed: over }
    }

    /// The output so far, once it has ended or after a short wait: another process may hold it open for ever.
    pub fn finish(&self) -> String {
        self.closed.recv_timeout(DRAIN_TIMEOUT).ok();
        self.text()
    }

    /// What there is now.
    pub fn text(&self) -> String {
        let text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// Keeps the end of what comes, until nothing does.
fn keep(mut stderr: impl Read, kept: &Mutex<Vec<u8>>) {
    let mut piece = [0; 1024];
    while let Ok(len @ 1..) = stderr.read(&mut piece) {
        let mut said = kept.lock().unwrap_or_else(PoisonError::into_inner);
        said.extend_from_slice(&piece[..len]);
        let excess = said.len().saturating_sub(TAIL_BYTES_MAX);
        said.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use plumb_clock::{monotonic_ns, sleep_until};

    use super::*;

    /// A shell's script, and the number of the process that it wrote first on standard output.
    fn started(script: &str) -> (AgentChildProcess, u32) {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let (process, mut stream) = AgentChildProcess::start(command, true, "here").unwrap();
        let mut text = String::new();
        while !text.ends_with('\n') {
            let mut byte = [0];
            stream.reader.read_exact(&mut byte).unwrap();
            text.push(char::from(byte[0]));
        }
        wait_until(|| !process.stderr.text().is_empty());
        (process, text.trim().parse().unwrap())
    }

    fn wait_until(is_so: impl Fn() -> bool) {
        let is_reached = (0..6_000).any(|_| {
            sleep_until(monotonic_ns() + 10_000_000);
            is_so()
        });
        assert!(is_reached, "not within a minute");
    }

    /// Ends it elsewhere; fails where that takes longer than anything does.
    fn ended(mut process: AgentChildProcess) -> String {
        let (done, over) = mpsc::channel();
        thread::spawn(move || done.send(process.end().1));
        over.recv_timeout(Duration::from_mins(1)).expect("it ends, whoever else lives on")
    }

    fn is_running(process: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    }

    #[test]
    fn ending_a_command_ends_its_group() {
        let (process, other) = started("sleep 600 & echo alas >&2; echo $!; wait");
        assert!(is_running(other));
        assert_eq!(ended(process), "alas\n");
        wait_until(|| !is_running(other));
    }

    #[test]
    fn a_process_outside_the_group_is_not_waited_for() {
        // It holds standard error open.
        let script = "setsid sh -c 'echo alas >&2; echo $$; exec sleep 600' & wait";
        let (process, other) = started(script);
        assert_eq!(ended(process), "alas\n");
        assert!(is_running(other), "it was in no group of plumb's");
        plumb_sys::process::signal(other, 9).unwrap();
    }

    #[test]
    fn the_end_of_standard_error_is_kept_however_long_it_is() {
        let (hear, mut speak) = io::pipe().unwrap();
        let said = StderrTail::capture(Some(hear));
        // Blocks for good where nobody reads.
        speak.write_all(&vec![b'.'; 1 << 20]).unwrap();
        speak.write_all(b"the last words").unwrap();
        drop(speak);
        let text = said.finish();
        assert!(text.ends_with("..the last words"), "{text}");
        assert_eq!(text.len(), TAIL_BYTES_MAX);
    }
}
