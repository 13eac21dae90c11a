//! Connections and the threads that serve them: a thread each, as long as there is a CPU for each.
//!
//! Where there are more connections than CPUs, a thread serves several, a call for each in turn. A thread each carried
//! half as much there (four connections between two CPUs, one for each side: 19 against 35 Gb/s): the scheduler lets
//! one run for milliseconds, in which it fills megabytes of buffers that no cache holds, and whoever waits at the
//! other end has to be woken for each connection. Left out: what a call is ([`PooledConnection`]), and who starts threads.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use plumb_sys::fd;
use plumb_sys::fd::{Epoll, EpollInterest};

use plumb_clock::{monotonic_ns, sleep_until};

/// After how long at most every member has had a turn, so that it sees that its test is over. Whoever may be alone
/// on its thread has its socket's calls wait no longer than this.
pub const CALL_TIMEOUT: Duration = Duration::from_millis(20);
const CALL_TIMEOUT_NS: u64 = 20_000_000;
const CALL_TIMEOUT_MS: i32 = 20;

/// When a member has its next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextCall {
    /// When its socket is ready.
    Socket,
    /// When the steady clock shows this many nanoseconds.
    At(u64),
    /// Never: it has ended.
    Done,
}

/// A connection that a thread serves, alone or with others.
pub trait PooledConnection {
    /// Its socket.
    fn socket(&self) -> BorrowedFd<'_>;

    /// Whether it now waits to read; to write otherwise.
    fn is_reading(&self) -> bool;

    /// One call on its socket. `buffer` is the thread's: what senders send, or where receivers put what comes.
    ///
    /// A socket that is not ready, or waited for as long as it may, is no end: the answer is [`NextCall::Socket`].
    fn call(&mut self, buffer: &mut [u8]) -> NextCall;

    /// Ends it, because it cannot be served.
    fn fail(&mut self, error: &io::Error);
}

/// Deals members to threads: as many as this process may use CPUs, and no more than there are members.
pub fn assign_to_threads<M>(members: Vec<M>) -> Vec<Vec<M>> {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    assign_to(members, cpus)
}

fn assign_to<M>(members: Vec<M>, threads: usize) -> Vec<Vec<M>> {
    let threads = threads.clamp(1, members.len().max(1));
    let mut groups: Vec<Vec<M>> = (0..threads).map(|_| Vec::new()).collect();
    for (index, member) in members.into_iter().enumerate() {
        if let Some(group) = groups.get_mut(index % threads) {
            group.push(member);
        }
    }
    groups.retain(|group| !group.is_empty());
    groups
}

/// Serves members on this thread until all have ended.
pub fn serve<M: PooledConnection>(members: &mut [M], buffer: &mut [u8]) {
    if let [member] = members {
        serve_one(member, buffer);
    } else if let Err(error) = PoolEventLoop::new(members).and_then(|mut round| round.run(buffer)) {
        for member in members {
            member.fail(&error);
        }
    }
}

/// One member in calls that wait.
fn serve_one<M: PooledConnection>(member: &mut M, buffer: &mut [u8]) {
    loop {
        match member.call(buffer) {
            NextCall::Socket => {}
            NextCall::At(due_ns) => sleep_until(due_ns.min(monotonic_ns() + CALL_TIMEOUT_NS)),
            NextCall::Done => return,
        }
    }
}

/// Several members, a call for each that is ready, and again.
struct PoolEventLoop<'a, M> {
    connections: &'a mut [M],
    waits: Vec<PoolWait>,
    epoll: Epoll,
}

/// What a member waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PoolWait {
    Reading,
    Writing,
    Until(u64),
    Nothing,
}

impl<'a, M: PooledConnection> PoolEventLoop<'a, M> {
    fn new(members: &'a mut [M]) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        let mut waits = Vec::with_capacity(members.len());
        for (token, member) in (0..).zip(members.iter()) {
            fd::set_nonblocking(member.socket(), true)?;
            let wait = socket_wait(member);
            if let Some(interest) = interest(wait) {
                epoll.add(member.socket(), token, interest)?;
            }
            waits.push(wait);
        }
        Ok(Self { connections: members, waits, epoll })
    }

    fn run(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let mut events = Vec::with_capacity(64);
        let mut looked_ns = monotonic_ns();
        while self.waits.iter().any(|&wait| wait != PoolWait::Nothing) {
            match self.epoll.wait(&mut events, self.timeout_ms()) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                Err(_) | Ok(()) => {}
            }
            for event in &events {
                if let Ok(index) = usize::try_from(event.token) {
                    self.call_one(index, buffer)?;
                }
            }
            let now_ns = monotonic_ns();
            let all = now_ns.saturating_sub(looked_ns) >= CALL_TIMEOUT_NS;
            for index in 0..self.waits.len() {
                let is_due =
                    matches!(self.waits.get(index), Some(PoolWait::Until(at)) if *at <= now_ns);
                if is_due || all {
                    self.call_one(index, buffer)?;
                }
            }
            if all {
                looked_ns = now_ns;
            }
        }
        Ok(())
    }

    /// How long nobody needs a turn unless a socket becomes ready. A time that is due within a millisecond is
    /// slept for, as epoll counts no smaller ones.
    fn timeout_ms(&self) -> i32 {
        let due = self.waits.iter().filter_map(|wait| match wait {
            PoolWait::Until(at_ns) => Some(*at_ns),
            _ => None,
        });
        let Some(due_ns) = due.min() else { return CALL_TIMEOUT_MS };
        let left_ms = due_ns.saturating_sub(monotonic_ns()) / 1_000_000;
        if left_ms == 0 {
            sleep_until(due_ns);
        }
        i32::try_from(left_ms).unwrap_or(CALL_TIMEOUT_MS).min(CALL_TIMEOUT_MS)
    }

    fn call_one(&mut self, index: usize, buffer: &mut [u8]) -> io::Result<()> {
        let (Some(member), Some(wait)) =
            (self.connections.get_mut(index), self.waits.get_mut(index))
        else {
            return Ok(());
        };
        if *wait == PoolWait::Nothing {
            return Ok(());
        }
        let next = match member.call(buffer) {
            NextCall::Socket => socket_wait(member),
            NextCall::At(due_ns) => PoolWait::Until(due_ns),
            NextCall::Done => PoolWait::Nothing,
        };
        let before = std::mem::replace(wait, next);
        let token = u64::try_from(index).unwrap_or(u64::MAX);
        // A connection that waits for a time is in no set: a broken one would be ready all the while.
        match (interest(before), interest(next)) {
            (before, after) if before == after => Ok(()),
            (Some(_), Some(after)) => self.epoll.modify(member.socket(), token, after),
            (None, Some(after)) => self.epoll.add(member.socket(), token, after),
            (_, None) => self.epoll.remove(member.socket()),
        }
    }
}

fn socket_wait(member: &impl PooledConnection) -> PoolWait {
    if member.is_reading() { PoolWait::Reading } else { PoolWait::Writing }
}

fn interest(wait: PoolWait) -> Option<EpollInterest> {
    match wait {
        PoolWait::Reading => Some(EpollInterest { read: true, write: false }),
        PoolWait::Writing => Some(EpollInterest { read: false, write: true }),
        PoolWait::Until(_) | PoolWait::Nothing => None,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Reads messages of four bytes until the stream ends, and notes whose turn it was.
    struct Reader<'a> {
        name: u32,
        stream: UnixStream,
        taken: usize,
        /// Until when it does not want to be asked, from the first byte on.
        pause_ns: u64,
        paused_until_ns: u64,
        turns: &'a RefCell<Vec<u32>>,
    }

    impl<'a> Reader<'a> {
        fn pair(name: u32, turns: &'a RefCell<Vec<u32>>) -> (Self, UnixStream) {
            let (stream, other) = UnixStream::pair().unwrap();
            stream.set_read_timeout(Some(CALL_TIMEOUT)).unwrap();
            (Self { name, stream, taken: 0, pause_ns: 0, paused_until_ns: 0, turns }, other)
        }
    }

    impl PooledConnection for Reader<'_> {
        fn socket(&self) -> BorrowedFd<'_> {
            self.stream.as_fd()
        }

        fn is_reading(&self) -> bool {
            true
        }

        fn call(&mut self, buffer: &mut [u8]) -> NextCall {
            let now_ns = monotonic_ns();
            if now_ns < self.paused_until_ns {
                return NextCall::At(self.paused_until_ns);
            }
            match self.stream.read(&mut buffer[..4]) {
                Ok(0) => return NextCall::Done,
                Ok(taken) => {
                    self.taken += taken;
                    self.turns.borrow_mut().push(self.name);
                    self.paused_until_ns = now_ns + self.pause_ns;
                }
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            NextCall::Socket
        }

        fn fail(&mut self, error: &io::Error) {
            panic!("{error}");
        }
    }

    #[test]
    fn members_are_dealt_evenly_to_no_more_threads_than_there_are_cpus_or_members() {
        let sizes = |members: usize, cpus| -> Vec<usize> {
            assign_to(vec![(); members], cpus).iter().map(Vec::len).collect()
        };
        assert_eq!(sizes(16, 2), [8, 8]);
        assert_eq!(sizes(5, 2), [3, 2]);
        assert_eq!(sizes(3, 8), [1, 1, 1]);
        assert!(sizes(0, 8).is_empty());
        assert_eq!(sizes(2, 0), [2]);
    }

    #[test]
    fn one_and_many_members_get_every_byte_and_end_with_their_streams() {
        for count in [1_u32, 3, 70] {
            let turns = RefCell::default();
            let (mut readers, writers): (Vec<_>, Vec<_>) =
                (0..count).map(|name| Reader::pair(name, &turns)).unzip();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    for mut writer in writers {
                        writer.write_all(&[7; 1_000]).unwrap();
                    }
                });
                serve(&mut readers, &mut [0; 16]);
            });
            assert!(readers.iter().all(|reader| reader.taken == 1_000), "{count}");
        }
    }

    #[test]
    fn members_that_are_all_ready_have_a_call_each_in_turn() {
        let turns = RefCell::default();
        let (mut readers, mut writers): (Vec<_>, Vec<_>) =
            (0..4).map(|name| Reader::pair(name, &turns)).unzip();
        for writer in &mut writers {
            writer.write_all(&[7; 400]).unwrap();
        }
        drop(writers);
        serve(&mut readers, &mut [0; 16]);
        let turns = turns.into_inner();
        assert_eq!(turns.len(), 400);
        for round in turns.chunks(4) {
            let mut names = round.to_vec();
            names.sort_unstable();
            assert_eq!(names, [0, 1, 2, 3]);
        }
    }

    #[test]
    fn a_member_that_waits_for_a_time_is_asked_then_and_holds_up_nobody() {
        let turns = RefCell::default();
        let (mut patient, mut to_patient) = Reader::pair(0, &turns);
        let (quick, mut to_quick) = Reader::pair(1, &turns);
        patient.pause_ns = 100_000_000;
        to_patient.write_all(&[7; 12]).unwrap();
        to_quick.write_all(&[7; 400]).unwrap();
        drop((to_patient, to_quick));
        let began_ns = monotonic_ns();
        serve(&mut [patient, quick], &mut [0; 16]);
        // Three messages with a pause after each.
        assert!(monotonic_ns() - began_ns >= 300_000_000);
        // Two pauses lie between the first message and the last. One that was held up would have
        // one turn after each.
        let turns = turns.into_inner();
        let first = turns.iter().position(|&name| name == 0).unwrap();
        let last = turns.iter().rposition(|&name| name == 0).unwrap();
        assert!(turns[first..last].iter().filter(|&&name| name == 1).count() > 10, "{turns:?}");
    }

    #[test]
    fn a_member_whose_socket_cannot_be_waited_for_is_told_and_ends() {
        struct Regular(std::fs::File, bool);
        impl PooledConnection for Regular {
            fn socket(&self) -> BorrowedFd<'_> {
                self.0.as_fd()
            }
            fn is_reading(&self) -> bool {
                true
            }
            fn call(&mut self, _: &mut [u8]) -> NextCall {
                NextCall::Done
            }
            fn fail(&mut self, _: &io::Error) {
                self.1 = true;
            }
        }
        let open = || Regular(std::fs::File::open("/proc/self/exe").unwrap(), false);
        let mut members = [open(), open()];
        serve(&mut members, &mut []);
        assert!(members.iter().all(|member| member.1));
    }
}
