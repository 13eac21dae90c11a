//! Requests of other processes to a running link: show, change, enter, end.
//!
//! One request per connection, a line of JSON each way.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use plumb_base::time::Span;
use plumb_link::spec::SpecError;
use plumb_link::text::{FileContents, LinkTextFiles, NamedFile, TextError, files_of};
use plumb_sys::timer;
use serde::{Deserialize, Serialize};

use super::running_link::{LinkHandle, LinkRevision, LinkState};
use crate::lab::{LinkRegistry, NamespaceFds, RegisteredName, RegistryError};

/// Time for a line of the other side, which has it ready.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait when the kernel has no descriptor for a connection.
const ACCEPT_PAUSE: Span = Span::from_ms(20);
/// Longest line, in bytes: JSON may encode a byte of a file as six.
const LINE_MAX: u64 = 6 * FILES_MAX as u64 + (1 << 20);
/// Most bytes of files with a change: an hour of a trace of 100 Mb/s.
const FILES_MAX: usize = 32 << 20;

/// Reply of a link whose driver has ended.
const ENDED: &str = "the link has ended";

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkControlRequest {
    /// The state, as a document.
    Show,
    /// The current description.
    Present,
    /// Change the link.
    Change(LinkChanges),
    /// The namespaces of the host of this name.
    Enter(String),
    /// End the link; its connection is closed when it has ended.
    Down,
}

/// Changes to a running link with the contents of their files, which it may not be able to read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkChanges {
    /// In order, in the language of `plumb_link::spec::LinkSpec::changed`.
    pub texts: Vec<String>,
    /// File contents by name.
    pub files: BTreeMap<String, String>,
}

impl LinkChanges {
    /// Reads the files that the changes name.
    ///
    /// # Errors
    /// A change that cannot be parsed, a file that cannot be read, or files too long to be sent.
    pub fn new(texts: Vec<String>, files: &dyn LinkTextFiles) -> Result<Self, TextError> {
        let mut changes = Self { texts, files: BTreeMap::new() };
        let mut room = FILES_MAX;
        for text in &changes.texts {
            for NamedFile::Trace(name) | NamedFile::Delays(name) in files_of(text)? {
                let unread = |why: String| TextError::unread("file", &name, &why);
                let content = files.read(&name).map_err(unread)?;
                let left = room.checked_sub(content.len());
                let too_long =
                    || format!("a running link takes {} MiB of files at once", FILES_MAX >> 20);
                room = left.ok_or_else(|| unread(too_long()))?;
                changes.files.insert(name, content);
            }
        }
        Ok(changes)
    }
}

impl LinkTextFiles for LinkChanges {
    fn read(&self, name: &str) -> Result<String, String> {
        self.files.get(name).cloned().ok_or_else(|| "it was not sent".to_owned())
    }
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkControlReply {
    /// Done; for `Enter`, descriptors follow.
    Done,
    /// The state, as a document.
    State(serde_json::Value),
    /// The changed link, as text.
    Text(String),
    /// The current description.
    Present(LinkRevision),
    /// Refused, and why.
    No(String),
}

/// Answers requests to a link.
pub struct LinkControlServer {
    /// The link.
    pub link: LinkHandle,
    /// Makes the document of a state.
    pub document: Box<dyn Fn(&LinkState) -> serde_json::Value + Send>,
    /// The namespaces of each host.
    pub namespaces: Vec<(String, NamespaceFds)>,
    /// Ends the link.
    pub stop: Box<dyn Fn() + Send>,
}

impl std::fmt::Debug for LinkControlServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkControlServer").field("link", &self.link).finish_non_exhaustive()
    }
}

impl LinkControlServer {
    /// Registers a name for the link's keeper, and answers requests on a thread of its own for as long as this
    /// process lives.
    ///
    /// # Errors
    /// The name is in use, or the kernel is out of threads or descriptors.
    pub fn publish(
        self,
        name: &str,
        registry: &Path,
        keeper: u32,
    ) -> Result<RegisteredName, RegistryError> {
        let registered = LinkRegistry::at(registry.to_owned()).register(name, keeper)?;
        let failed = |source| RegistryError::Io { path: registered.path().to_owned(), source };
        let listener = registered.listener.try_clone().map_err(failed)?;
        let thread = thread::Builder::new().name("control".to_owned());
        thread.spawn(move || self.serve(&listener)).map_err(failed)?;
        Ok(registered)
    }

    fn serve(&self, listener: &UnixListener) {
        // Connections that wait for the end, of which the kernel tells them by closing.
        let mut waiting = Vec::new();
        for stream in paced_connections(listener.incoming()) {
            // An error is the client's: it has gone.
            if let Ok(LinkControlRequest::Down) = self.handle_connection(&stream) {
                waiting.push(stream);
                (self.stop)();
            }
        }
    }

    /// Answers and returns one request.
    fn handle_connection(&self, stream: &UnixStream) -> io::Result<LinkControlRequest> {
        set_timeouts(stream)?;
        // Read ahead: nothing follows a request, which may hold files.
        let request: LinkControlRequest = read_line(stream, 1 << 16)?;
        let mut entered = None;
        let reply = match &request {
            LinkControlRequest::Show => {
                self.link.state().map(|state| LinkControlReply::State((self.document)(&state)))
            }
            LinkControlRequest::Present => self.link.revision().map(LinkControlReply::Present),
            LinkControlRequest::Change(changes) => self.change(changes),
            LinkControlRequest::Enter(host) => {
                entered = self.namespaces.iter().find(|(name, _)| name == host);
                Some(if entered.is_some() { LinkControlReply::Done } else { self.no_host(host) })
            }
            LinkControlRequest::Down => Some(LinkControlReply::Done),
        };
        write_line(stream, &reply.unwrap_or_else(|| LinkControlReply::No(ENDED.to_owned())))?;
        if let Some((_, namespaces)) = entered {
            namespaces.send(stream)?;
        }
        Ok(request)
    }

    fn no_host(&self, host: &str) -> LinkControlReply {
        let names: Vec<&str> = self.namespaces.iter().map(|(name, _)| name.as_str()).collect();
        let known = names.join(", ");
        LinkControlReply::No(format!("there is no host '{host}' there; choose from: {known}"))
    }

    /// `None` once the link has ended.
    fn change(&self, changes: &LinkChanges) -> Option<LinkControlReply> {
        // Files are parsed here, so that the driver's thread need not.
        let texts = changes.texts.iter().map(String::as_str);
        let changed = match FileContents::of(texts, changes) {
            Ok(contents) => self.link.change(changes.texts.clone(), contents)?,
            Err(error) => Err(error),
        };
        Some(match changed {
            Ok(spec) => LinkControlReply::Text(spec.to_string()),
            Err(error @ TextError::Spec(SpecError::Memory { .. })) => {
                LinkControlReply::No(format!(
                    "{error}; or start a new link so: memory for frames is reserved at its start"
                ))
            }
            Err(error) => LinkControlReply::No(error.to_string()),
        })
    }
}

/// The connections of a listener, with a pause after each error: it may last, as that of too many open files does.
fn paced_connections<S>(incoming: impl Iterator<Item = io::Result<S>>) -> impl Iterator<Item = S> {
    let paused = |_: &io::Error| {
        timer::sleep_ns(ACCEPT_PAUSE.as_ns());
    };
    incoming.filter_map(move |stream| stream.inspect_err(paused).ok())
}

/// Why a running link did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum LinkControlError {
    /// It does not answer.
    #[error("the link does not answer")]
    Silent(#[from] io::Error),
    /// It refuses.
    #[error("{0}")]
    Refused(String),
}

/// Sends a request to a running link.
///
/// # Errors
/// It does not answer; it refuses.
pub fn ask(
    stream: &UnixStream,
    request: &LinkControlRequest,
) -> Result<LinkControlReply, LinkControlError> {
    set_timeouts(stream)?;
    write_line(stream, request)?;
    // Byte by byte, since descriptors may follow the line.
    match read_line(stream, 1)? {
        LinkControlReply::No(why) => Err(LinkControlError::Refused(why)),
        reply => Ok(reply),
    }
}

fn set_timeouts(stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
    stream.set_write_timeout(Some(REPLY_TIMEOUT))
}

/// Waits until a link that was asked to end has ended; false if it does not in time.
pub fn wait_for_end(mut stream: &UnixStream) -> bool {
    /// Time for a command to end.
    const END_MAX: Duration = Duration::from_secs(10);
    let is_late = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
    };
    stream.set_read_timeout(Some(END_MAX)).is_ok()
        && !stream.read(&mut [0]).is_err_and(|error| is_late(&error))
}

fn write_line<T: Serialize>(mut stream: &UnixStream, value: &T) -> io::Result<()> {
    let mut line = serde_json::to_string(value)?;
    line.push('\n');
    stream.write_all(line.as_bytes())
}

fn read_line<T: for<'a> Deserialize<'a>>(stream: &UnixStream, ahead: usize) -> io::Result<T> {
    let mut reader = BufReader::with_capacity(ahead, stream.take(LINE_MAX));
    let mut line = String::new();
    reader.read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    serde_json::from_str(&line).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use plumb_clock::monotonic_ns;

    use super::*;

    #[test]
    fn errors_of_a_listener_that_last_take_no_cpu() {
        let began_ns = monotonic_ns();
        let errors = (0..5).map(|_| Err(io::Error::other("too many open files")));
        let connections: Vec<u8> = paced_connections(errors.chain([Ok(7)])).collect();
        assert_eq!(connections, [7]);
        assert!(monotonic_ns() - began_ns >= 5 * 20_000_000, "it tried again at once");
    }
}
