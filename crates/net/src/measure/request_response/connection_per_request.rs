//! A connection for each request: connect, ask, read to the end.
//!
//! The answering side closes first, so that its ports, not the asking side's, wait before they serve again.
//! Left out: what a connection shows of itself, and encrypts by ([`super::endpoint`]).

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;

use super::closed_loop::ClosedLoop;
use super::{RequestResponseError, RequestResponseSpec, RequesterReport};
use crate::measure::bulk::Counter;
use plumb_clock::monotonic_ns;

/// How often the accept loop looks whether it is over.
const LOOK_EVERY_MS: i32 = 20;

/// Asks once over each of the connections that `connect` makes; each begins with `opening`.
///
/// # Errors
/// [`RequestResponseError`].
pub fn send_requests<S: Read + Write>(
    spec: &RequestResponseSpec,
    opening: &[u8],
    progress: &Counter,
    mut connect: impl FnMut() -> io::Result<S>,
    is_halted: impl Fn() -> bool,
) -> Result<RequesterReport, RequestResponseError> {
    spec.check()?;
    let request = [opening, &spec.request()].concat();
    let mut response = spec.response();
    let mut turns = ClosedLoop::new(spec, progress);
    while !is_halted()
        && let Some(due) = turns.next_request()
    {
        let asked = connect().and_then(|mut stream| {
            let connected = monotonic_ns();
            request_once(&mut stream, &request, &mut response)?;
            Ok(connected)
        });
        match asked {
            Ok(connected) => {
                turns.on_response(due);
                turns.on_connected(due, connected - due);
            }
            Err(error) => return Err(turns.into_error(error)),
        }
    }
    Ok(turns.into_report())
}

fn request_once(
    stream: &mut (impl Read + Write),
    request: &[u8],
    response: &mut [u8],
) -> io::Result<()> {
    stream.write_all(request)?;
    stream.flush()?;
    stream.read_exact(response)?;
    match stream.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "more than a response came")),
    }
}

/// Gives each connection that comes from `client` to `serve`, until `is_over` says so; how many were
/// served, and how many were not.
///
/// # Errors
/// The listening socket's; a connection that fails is passed over.
pub fn respond(
    listener: &TcpListener,
    client: IpAddr,
    mut serve: impl FnMut(TcpStream) -> io::Result<()>,
    is_over: impl Fn() -> bool,
) -> io::Result<(u64, u64)> {
    listener.set_nonblocking(true)?;
    let (mut served, mut failed) = (0, 0);
    loop {
        if !plumb_sys::fd::poll_readable(listener.as_fd(), LOOK_EVERY_MS)? {
            if is_over() {
                return Ok((served, failed));
            }
            continue;
        }
        let Ok((stream, from)) = listener.accept() else { continue };
        let outcome = if from.ip().to_canonical() == client.to_canonical() {
            stream.set_nonblocking(false).and_then(|()| serve(stream))
        } else {
            Err(io::ErrorKind::PermissionDenied.into())
        };
        match outcome {
            Ok(()) => served += 1,
            Err(_) => failed += 1,
        }
        // Somebody who goes on connecting does not keep it from ending.
        if (served + failed) % 64 == 0 && is_over() {
            return Ok((served, failed));
        }
    }
}
