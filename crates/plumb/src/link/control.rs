//! What is said to a link that runs, from other processes: show yourself, change, let me in, end.
//!
//! One question a connection, a line of JSON each way.

use std::collections::BTreeMap;
use std::io;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::OnceLock;
use std::time::Duration;

use plumb_analysis::document::link::LinkDocument;
use plumb_harness::launch_network;
use plumb_harness::launch_network::OUTER_CONTROL_ENV;
use plumb_link::spec::SpecError;
use plumb_link::text::{FileContents, LinkTextFiles, NamedFile, TextError, files_of};
use plumb_netdev::lab::NamespaceFds;
use serde::{Deserialize, Serialize};

use crate::link::running_link::{LinkControl, LinkRevision};
use crate::problem::Problem;

/// How long the other side may take for a line: it has it ready.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest line, in bytes: files as JSON, where a character may become six.
const LINE_MAX: u64 = 6 * FILES_MAX as u64 + (1 << 20);
/// Most bytes of files with a change: an hour of a trace of a hundred megabits a second.
const FILES_MAX: usize = 32 << 20;

/// What is answered when there is nobody to ask any more.
const ENDED: &str = "the link has ended";

/// A question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkControlRequest {
    /// How is it?
    Show,
    /// What is it asked to be now?
    Present,
    /// Change so.
    Change(LinkChanges),
    /// The namespaces of the host of this name.
    Enter(String),
    /// End.
    Down,
}

/// Changes to a link that runs, and what their files contain: it cannot read those of who asks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkChanges {
    /// One after the other, as `plumb_link::spec::LinkSpec::changed` reads them.
    pub texts: Vec<String>,
    /// By their names.
    pub files: BTreeMap<String, String>,
}

impl LinkChanges {
    /// With the files that they name, read here.
    ///
    /// # Errors
    /// A change or a file that cannot be read, or files too long to be sent.
    pub fn new(texts: Vec<String>, files: &dyn LinkTextFiles) -> Result<Self, TextError> {
        let mut changes = Self { texts, files: BTreeMap::new() };
        let mut room = FILES_MAX;
        for text in &changes.texts {
            for NamedFile::Trace(name) | NamedFile::Delays(name) in files_of(text)? {
                let unread = |why| TextError::File { key: "file", file: name.clone(), why };
                let content = files.read(&name).map_err(unread)?;
                let left = room.checked_sub(content.len());
                let too_long =
                    || format!("a link that runs takes {} MiB of files at once", FILES_MAX >> 20);
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

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkControlReply {
    /// Done; descriptors follow where they were asked for.
    Done,
    /// How it is.
    State(Box<LinkDocument>),
    /// The link as text.
    Text(String),
    /// What it is asked to be.
    Present(LinkRevision),
    /// No, and why.
    No(String),
}

/// What answers need.
pub struct LinkControlServer {
    /// The link.
    pub link: Box<dyn LinkControl>,
    /// Ways into each host.
    pub namespaces: Vec<(String, NamespaceFds)>,
    /// How it is, as a document.
    pub document: Box<dyn Fn() -> Option<LinkDocument> + Send>,
    /// Ends it.
    pub stop: Box<dyn Fn() + Send>,
}

impl std::fmt::Debug for LinkControlServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("doors", &self.namespaces).finish_non_exhaustive()
    }
}

impl LinkControlServer {
    /// Answers whoever comes, on a thread of its own, for as long as this process lives.
    ///
    /// # Errors
    /// There are no more threads or descriptors.
    pub fn spawn(self, listener: &UnixListener) -> io::Result<()> {
        let listener = listener.try_clone()?;
        let serve = move || {
            // Whoever wants the end hears of it by the end of the connection.
            let mut waiting = Vec::new();
            for stream in listener.incoming().flatten() {
                // Whoever goes away in between hears no answer.
                if self
                    .handle_connection(&stream)
                    .is_ok_and(|question| question == LinkControlRequest::Down)
                {
                    waiting.push(stream);
                    (self.stop)();
                }
            }
        };
        std::thread::Builder::new().name("control".to_owned()).spawn(serve).map(drop)
    }

    /// Answers one question; which it was.
    fn handle_connection(&self, stream: &UnixStream) -> io::Result<LinkControlRequest> {
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
        // Nothing follows a question, and files may come with it.
        let question: LinkControlRequest = read_line(stream, 1 << 16)?;
        let doors = match &question {
            LinkControlRequest::Enter(host) => {
                self.namespaces.iter().find(|(name, _)| name == host)
            }
            _ => None,
        };
        let answer = match &question {
            LinkControlRequest::Show => match (self.document)() {
                Some(document) => LinkControlReply::State(Box::new(document)),
                None => LinkControlReply::No(ENDED.to_owned()),
            },
            LinkControlRequest::Present => match self.link.revision() {
                Some(present) => LinkControlReply::Present(present),
                None => LinkControlReply::No(ENDED.to_owned()),
            },
            LinkControlRequest::Change(changes) => self.change(changes),
            LinkControlRequest::Enter(host) if doors.is_none() => {
                let names: Vec<&str> =
                    self.namespaces.iter().map(|(name, _)| name.as_str()).collect();
                let known = names.join(", ");
                LinkControlReply::No(format!(
                    "there is no host '{host}' there; choose from: {known}"
                ))
            }
            LinkControlRequest::Enter(_) | LinkControlRequest::Down => LinkControlReply::Done,
        };
        write_line(stream, &answer)?;
        if let Some((_, doors)) = doors {
            doors.send(stream)?;
        }
        Ok(question)
    }

    fn change(&self, changes: &LinkChanges) -> LinkControlReply {
        // Understood here, so that the link's own thread need not.
        let texts = changes.texts.iter().map(String::as_str);
        let contents = match FileContents::of(texts, changes) {
            Ok(contents) => contents,
            Err(error) => return LinkControlReply::No(error.to_string()),
        };
        match self.link.change(changes.texts.clone(), contents) {
            Some(Ok(spec)) => LinkControlReply::Text(spec.to_string()),
            Some(Err(error @ TextError::Spec(SpecError::Memory { .. }))) => LinkControlReply::No(
                format!("{error}; or start a link so: room for frames is made at its beginning"),
            ),
            Some(Err(error)) => LinkControlReply::No(error.to_string()),
            None => LinkControlReply::No(ENDED.to_owned()),
        }
    }
}

/// Asks a link that runs.
///
/// # Errors
/// It does not answer; its refusal.
pub fn ask(
    stream: &UnixStream,
    question: &LinkControlRequest,
) -> Result<LinkControlReply, Problem> {
    let silent = |error| {
        Problem::failure("the link does not answer")
            .because(error)
            .fix("it may be ending: 'plumb link list' shows those that run")
    };
    stream.set_read_timeout(Some(REPLY_TIMEOUT)).map_err(silent)?;
    stream.set_write_timeout(Some(REPLY_TIMEOUT)).map_err(silent)?;
    write_line(stream, question).map_err(silent)?;
    // Byte by byte, as descriptors may come with what follows the line.
    match read_line(stream, 1).map_err(silent)? {
        LinkControlReply::No(why) => {
            Err(Problem::from_message(&why, crate::problem::ExitReason::Usage))
        }
        answer => Ok(answer),
    }
}

/// Waits until a link that was asked to end has ended; whether it has, in time.
pub fn wait_for_end(mut stream: &UnixStream) -> bool {
    /// How long a command may take that was asked to end.
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

/// What was found at the first look, and whether the link itself has said so.
#[derive(Debug)]
struct OuterLink {
    revision: LinkRevision,
    is_confirmed: bool,
}

fn found() -> Option<&'static OuterLink> {
    // One text for a whole run, whatever becomes of the link.
    static FOUND: OnceLock<Option<OuterLink>> = OnceLock::new();
    let look = || {
        let link = launch_network::outer_link()?;
        Some(match query_revision() {
            Some(present) => OuterLink { revision: present, is_confirmed: true },
            None => OuterLink { revision: LinkRevision { link, changes: 0 }, is_confirmed: false },
        })
    };
    FOUND.get_or_init(look).as_ref()
}

/// What the link says of itself now; none where there is none, or it does not answer.
fn query_revision() -> Option<LinkRevision> {
    let path = std::env::var_os(OUTER_CONTROL_ENV).filter(|path| !path.is_empty())?;
    let stream = UnixStream::connect(path).ok()?;
    match ask(&stream, &LinkControlRequest::Present) {
        Ok(LinkControlReply::Present(present)) => Some(present),
        _ => None,
    }
}

/// The text of the link that this process runs behind, as it was at the first look, if it runs behind
/// one whose far side it knows.
pub fn outer_link() -> Option<String> {
    found().map(|found| found.revision.link.clone())
}

/// What that link is now, where it has changed since the first look, be it there and back.
pub fn changed() -> Option<String> {
    let found = found().filter(|found| found.is_confirmed)?;
    query_revision().filter(|now| *now != found.revision).map(|now| now.link)
}
