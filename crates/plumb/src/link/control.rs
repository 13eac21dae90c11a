//! What is said to a link that runs, from other processes: show yourself, change, let me in, end.
//!
//! One question a connection, a line of JSON each way. Left out: finding each other
//! (`plumb_host::lab::Registry`).

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plumb_analysis::document::link::LinkDocument;
use plumb_host::lab::Doors;
use plumb_link::spec::LinkSpec;
use serde::{Deserialize, Serialize};

use super::course::Talk;
use super::room::Room;
use crate::problem::Problem;

/// How long the other side may take for a line: it has it ready.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest line, in bytes.
const LINE_MAX: u64 = 1 << 20;

/// A question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// How is it?
    Show,
    /// What is it asked to be now, as text?
    Text,
    /// Become this text.
    Set(String),
    /// The namespaces of the host of this name.
    Enter(String),
    /// End.
    Down,
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
    /// No, and why.
    No(String),
}

/// The link that is shared by everybody who may change it: its text, and how often it changed.
#[derive(Debug)]
pub struct Asked {
    inner: Mutex<(LinkSpec, u64)>,
    room: Room,
}

impl Asked {
    /// As it begins.
    pub fn new(spec: LinkSpec, room: Room) -> Self {
        Self { inner: Mutex::new((spec, 0)), room }
    }

    /// As it is asked to be, and how often that changed.
    pub fn now(&self) -> (LinkSpec, u64) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the link that runs, and remembers it where that succeeds.
    ///
    /// # Errors
    /// What the link has against it, or that there is no room for it.
    pub fn set(&self, talk: &dyn Talk, spec: LinkSpec) -> Result<(), String> {
        self.room.check(&spec).map_err(|error| {
            format!("{error}; or start a link so: room for frames is made at its beginning")
        })?;
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        match talk.set(spec.clone()) {
            Some(Ok(())) => {
                *inner = (spec, inner.1 + 1);
                Ok(())
            }
            Some(Err(error)) => Err(error.to_string()),
            None => Err("the link has ended".to_owned()),
        }
    }
}

/// What answers need.
pub struct Desk {
    /// The link.
    pub talk: Box<dyn Talk>,
    /// What it is asked to be.
    pub asked: Arc<Asked>,
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
        let question: Question = read_line(stream)?;
        let doors = match &question {
            Question::Enter(host) => self.doors.iter().find(|(name, _)| name == host),
            _ => None,
        };
        let answer = match &question {
            Question::Show => match (self.show)() {
                Some(document) => Answer::State(Box::new(document)),
                None => Answer::No("the link has ended".to_owned()),
            },
            Question::Text => Answer::Text(self.asked.now().0.to_string()),
            Question::Set(text) => self.set(text),
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

    fn set(&self, text: &str) -> Answer {
        // Files that the text names were read where it was written.
        let spec = match text.parse::<LinkSpec>() {
            Ok(spec) => spec,
            Err(error) => return Answer::No(error.to_string()),
        };
        match self.asked.set(&*self.talk, spec) {
            Ok(()) => Answer::Done,
            Err(why) => Answer::No(why),
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
    write_line(stream, question).map_err(silent)?;
    match read_line(stream).map_err(silent)? {
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

fn read_line<T: for<'a> Deserialize<'a>>(stream: &UnixStream) -> io::Result<T> {
    // Byte by byte, as descriptors may come with what follows the line.
    let mut reader = BufReader::with_capacity(1, stream.take(LINE_MAX));
    let mut line = String::new();
    reader.read_line(&mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    serde_json::from_str(&line).map_err(io::Error::from)
}
