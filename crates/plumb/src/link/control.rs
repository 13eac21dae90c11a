//! What is said to a link that runs, from other processes: show yourself, change, let me in, end.
//!
//! One question a connection, a line of JSON each way. Left out: finding each other
//! (`plumb_host::lab::Registry`).

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use plumb_analysis::document::link::LinkDocument;
use plumb_host::lab::Doors;
use plumb_link::spec::SpecError;
use plumb_link::text::{Contents, Files, Named, TextError, files_of};
use serde::{Deserialize, Serialize};

use super::course::Talk;
use crate::problem::Problem;

/// How long the other side may take for a line: it has it ready.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest line, in bytes: files as JSON, where a character may become six.
const LINE_MAX: u64 = 6 * FILES_MAX as u64 + (1 << 20);
/// Most bytes of files with a change: an hour of a trace of a hundred megabits a second.
const FILES_MAX: usize = 32 << 20;

/// What is answered when there is nobody to ask any more.
const ENDED: &str = "the link has ended";

/// A question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// How is it?
    Show,
    /// What is it asked to be now?
    Present,
    /// Change so.
    Change(Changes),
    /// The namespaces of the host of this name.
    Enter(String),
    /// End.
    Down,
}

/// What a link is asked to be at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Present {
    /// As text.
    pub link: String,
    /// How often it has changed.
    pub changes: u64,
}

/// Changes to a link that runs, and what their files contain: it cannot read those of who asks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Changes {
    /// One after the other, as `plumb_link::spec::LinkSpec::changed` reads them.
    pub texts: Vec<String>,
    /// By their names.
    pub files: BTreeMap<String, String>,
}

impl Changes {
    /// With the files that they name, read here.
    ///
    /// # Errors
    /// A change or a file that cannot be read, or files too long to be sent.
    pub fn new(texts: Vec<String>, files: &dyn Files) -> Result<Self, TextError> {
        let mut changes = Self { texts, files: BTreeMap::new() };
        let mut room = FILES_MAX;
        for text in &changes.texts {
            for Named::Trace(name) | Named::Delays(name) in files_of(text)? {
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

impl Files for Changes {
    fn read(&self, name: &str) -> Result<String, String> {
        self.files.get(name).cloned().ok_or_else(|| "it was not sent".to_owned())
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Done; descriptors follow where they were asked for.
    Done,
    /// How it is.
    State(Box<LinkDocument>),
    /// The link as text.
    Text(String),
    /// What it is asked to be.
    Present(Present),
    /// No, and why.
    No(String),
}

/// What answers need.
pub struct Desk {
    /// The link.
    pub talk: Box<dyn Talk>,
    /// Ways into each host.
    pub doors: Vec<(String, Doors)>,
    /// How it is, as a document.
    pub show: Box<dyn Fn() -> Option<LinkDocument> + Send>,
    /// Ends it.
    pub down: Box<dyn Fn() + Send>,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("doors", &self.doors).finish_non_exhaustive()
    }
}

impl Desk {
    /// Answers whoever comes, on a thread of its own, for as long as this process lives.
    ///
    /// # Errors
    /// There are no more threads or descriptors.
    pub fn open(self, listener: &UnixListener) -> io::Result<()> {
        let listener = listener.try_clone()?;
        let serve = move || {
            // Whoever wants the end hears of it by the end of the connection.
            let mut waiting = Vec::new();
            for stream in listener.incoming().flatten() {
                // Whoever goes away in between hears no answer.
                if self.serve(&stream).is_ok_and(|question| question == Question::Down) {
                    waiting.push(stream);
                    (self.down)();
                }
            }
        };
        std::thread::Builder::new().name("control".to_owned()).spawn(serve).map(drop)
    }

    /// Answers one question; which it was.
    fn serve(&self, stream: &UnixStream) -> io::Result<Question> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        // Nothing follows a question, and files may come with it.
        let question: Question = read_line(stream, 1 << 16)?;
        let doors = match &question {
            Question::Enter(host) => self.doors.iter().find(|(name, _)| name == host),
            _ => None,
        };
        let answer = match &question {
            Question::Show => match (self.show)() {
                Some(document) => Answer::State(Box::new(document)),
                None => Answer::No(ENDED.to_owned()),
            },
            Question::Present => match self.talk.present() {
                Some(present) => Answer::Present(present),
                None => Answer::No(ENDED.to_owned()),
            },
            Question::Change(changes) => self.change(changes),
            Question::Enter(host) if doors.is_none() => {
                let names: Vec<&str> = self.doors.iter().map(|(name, _)| name.as_str()).collect();
                let known = names.join(", ");
                Answer::No(format!("there is no host '{host}' there; choose from: {known}"))
            }
            Question::Enter(_) | Question::Down => Answer::Done,
        };
        write_line(stream, &answer)?;
        if let Some((_, doors)) = doors {
            doors.hand_over(stream)?;
        }
        Ok(question)
    }

    fn change(&self, changes: &Changes) -> Answer {
        // Understood here, so that the link's own thread need not.
        let texts = changes.texts.iter().map(String::as_str);
        let contents = match Contents::of(texts, changes) {
            Ok(contents) => contents,
            Err(error) => return Answer::No(error.to_string()),
        };
        match self.talk.change(changes.texts.clone(), contents) {
            Some(Ok(spec)) => Answer::Text(spec.to_string()),
            Some(Err(error @ TextError::Spec(SpecError::Memory { .. }))) => Answer::No(format!(
                "{error}; or start a link so: room for frames is made at its beginning"
            )),
            Some(Err(error)) => Answer::No(error.to_string()),
            None => Answer::No(ENDED.to_owned()),
        }
    }
}

/// Asks a link that runs.
///
/// # Errors
/// It does not answer; its refusal.
pub fn ask(stream: &UnixStream, question: &Question) -> Result<Answer, Problem> {
    let silent = |error| {
        Problem::trouble("the link does not answer")
            .because(error)
            .fix("it may be ending: 'plumb link list' shows those that run")
    };
    stream.set_read_timeout(Some(PATIENCE)).map_err(silent)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(silent)?;
    write_line(stream, question).map_err(silent)?;
    // Byte by byte, as descriptors may come with what follows the line.
    match read_line(stream, 1).map_err(silent)? {
        Answer::No(why) => Err(Problem::from_message(&why, crate::problem::Exit::Usage)),
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
