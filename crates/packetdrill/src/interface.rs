//! packetdrill's interface to a stack, as its `packetdrill.h` has it: pointers in, [`SocketShim`] behind.

use std::ffi::{CStr, c_char, c_int, c_long, c_longlong, c_uint, c_ulong, c_void};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::abort;

use libc::{iovec, msghdr, nfds_t, pollfd, sockaddr, socklen_t, ssize_t, timeval};
use plumb_base::time::Span;
use plumb_conform::script::CallValue;

use crate::constants::{message_flags, option_name};
use crate::shim::{ErrorNumber, ShimResult, SocketShim, complain};

/// A function that is not offered.
type AbsentFunction = unsafe extern "C" fn() -> c_int;

/// packetdrill's structure; the order of its fields is the interface. `fcntl` and `ioctl` are variadic there: on the processors that
/// plumb runs on, an integer or pointer argument is passed the same way.
#[repr(C)]
#[derive(Debug)]
#[expect(missing_docs, reason = "each is the system call of its name")]
pub struct PacketdrillInterface {
    pub userdata: *mut c_void,
    pub free: unsafe extern "C" fn(*mut c_void),
    pub socket: unsafe extern "C" fn(*mut c_void, c_int, c_int, c_int) -> c_int,
    pub bind: unsafe extern "C" fn(*mut c_void, c_int, *const sockaddr, socklen_t) -> c_int,
    pub listen: unsafe extern "C" fn(*mut c_void, c_int, c_int) -> c_int,
    pub accept: unsafe extern "C" fn(*mut c_void, c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    pub connect: unsafe extern "C" fn(*mut c_void, c_int, *const sockaddr, socklen_t) -> c_int,
    pub read: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, usize) -> ssize_t,
    pub readv: unsafe extern "C" fn(*mut c_void, c_int, *const iovec, c_int) -> ssize_t,
    pub recv: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, usize, c_int) -> ssize_t,
    pub recvfrom: unsafe extern "C" fn(
        *mut c_void,
        c_int,
        *mut c_void,
        usize,
        c_int,
        *mut sockaddr,
        *mut socklen_t,
    ) -> ssize_t,
    pub recvmsg: unsafe extern "C" fn(*mut c_void, c_int, *mut msghdr, c_int) -> ssize_t,
    pub write: unsafe extern "C" fn(*mut c_void, c_int, *const c_void, usize) -> ssize_t,
    pub writev: unsafe extern "C" fn(*mut c_void, c_int, *const iovec, c_int) -> ssize_t,
    pub send: unsafe extern "C" fn(*mut c_void, c_int, *const c_void, usize, c_int) -> ssize_t,
    pub sendto: unsafe extern "C" fn(
        *mut c_void,
        c_int,
        *const c_void,
        usize,
        c_int,
        *const sockaddr,
        socklen_t,
    ) -> ssize_t,
    pub sendmsg: unsafe extern "C" fn(*mut c_void, c_int, *const msghdr, c_int) -> ssize_t,
    pub fcntl: unsafe extern "C" fn(*mut c_void, c_int, c_int, c_long) -> c_int,
    pub ioctl: unsafe extern "C" fn(*mut c_void, c_int, c_ulong, *mut c_int) -> c_int,
    pub close: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    pub shutdown: unsafe extern "C" fn(*mut c_void, c_int, c_int) -> c_int,
    pub getsockopt: unsafe extern "C" fn(
        *mut c_void,
        c_int,
        c_int,
        c_int,
        *mut c_void,
        *mut socklen_t,
    ) -> c_int,
    pub setsockopt:
        unsafe extern "C" fn(*mut c_void, c_int, c_int, c_int, *const c_void, socklen_t) -> c_int,
    pub poll: unsafe extern "C" fn(*mut c_void, *mut pollfd, nfds_t, c_int) -> c_int,
    pub netdev_send: unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> c_int,
    pub netdev_receive:
        unsafe extern "C" fn(*mut c_void, *mut c_void, *mut usize, *mut c_longlong) -> c_int,
    pub usleep: unsafe extern "C" fn(*mut c_void, c_uint) -> c_int,
    pub gettimeofday: unsafe extern "C" fn(*mut c_void, *mut timeval, *mut c_void) -> c_int,
    pub epoll_create: AbsentFunction,
    pub epoll_ctl: AbsentFunction,
    pub epoll_wait: AbsentFunction,
    pub pipe: AbsentFunction,
    pub splice: AbsentFunction,
}

/// What packetdrill calls once, with the text of `--so_flags` or null.
///
/// # Safety
/// `flags` is null or a string that ends with a zero; `interface` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(
    flags: *const c_char,
    interface: *mut PacketdrillInterface,
) {
    let flags = if flags.is_null() {
        c""
    } else {
        // SAFETY: the caller's promise.
        unsafe { CStr::from_ptr(flags) }
    };
    let shim = match SocketShim::new(&flags.to_string_lossy()) {
        Ok(shim) => shim,
        Err(error) => {
            complain(&format!("--so_flags: {error}"));
            abort();
        }
    };
    let table = PacketdrillInterface {
        userdata: Box::into_raw(Box::new(shim)).cast(),
        free,
        socket,
        bind,
        listen,
        accept,
        connect,
        read,
        readv,
        recv,
        recvfrom,
        recvmsg,
        write,
        writev,
        send,
        sendto,
        sendmsg,
        fcntl,
        ioctl,
        close,
        shutdown,
        getsockopt,
        setsockopt,
        poll,
        netdev_send,
        netdev_receive,
        usleep,
        gettimeofday,
        epoll_create: absent,
        epoll_ctl: absent,
        epoll_wait: absent,
        pipe: absent,
        splice: absent,
    };
    // SAFETY: the caller's promise.
    unsafe { interface.write(table) }
}

/// The shim behind `userdata`.
///
/// # Safety
/// It comes from `packetdrill_interface_init`, and `free` has not been called.
unsafe fn shim<'a>(userdata: *mut c_void) -> &'a SocketShim {
    // SAFETY: the caller's promise; what it points to is shared by threads and is `Sync`.
    unsafe { &*userdata.cast_const().cast::<SocketShim>() }
}

/// What a call returns in C, with `errno` set if it failed.
fn returned(result: ShimResult) -> c_int {
    c_int::try_from(returned_long(result)).unwrap_or(c_int::MAX)
}

fn returned_long(result: ShimResult) -> ssize_t {
    match result {
        Ok(value) => isize::try_from(value).unwrap_or(isize::MAX),
        Err(ErrorNumber(number)) => {
            // SAFETY: it takes no argument and gives this thread's own.
            let errno = unsafe { libc::__errno_location() };
            // SAFETY: it is this thread's own.
            unsafe { errno.write(number) };
            -1
        }
    }
}

unsafe extern "C" fn absent() -> c_int {
    complain("unsupported: epoll, pipes and splice");
    returned(Err(ErrorNumber(libc::ENOSYS)))
}

unsafe extern "C" fn free(userdata: *mut c_void) {
    // SAFETY: it was made of a box, and packetdrill is done with it.
    drop(unsafe { Box::from_raw(userdata.cast::<SocketShim>()) });
}

unsafe extern "C" fn socket(data: *mut c_void, _: c_int, kind: c_int, _: c_int) -> c_int {
    let mut kinds = vec![CallValue::Word(
        if kind & 0xf == libc::SOCK_STREAM { "SOCK_STREAM" } else { "another kind" }.to_owned(),
    )];
    if kind & libc::SOCK_NONBLOCK != 0 {
        kinds.push(CallValue::Word("SOCK_NONBLOCK".to_owned()));
    }
    // SAFETY: packetdrill's promise.
    let shim = unsafe { shim(data) };
    returned(shim.open("socket", vec![CallValue::Any, CallValue::Or(kinds)]))
}

/// Reads an address.
///
/// # Safety
/// It is null or an address of its family.
unsafe fn read_address(address: *const sockaddr) -> Option<SocketAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    match c_int::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the caller's promise.
            let found = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(found.sin_addr.s_addr));
            Some((ip, u16::from_be(found.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the caller's promise.
            let found = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(found.sin6_addr.s6_addr);
            Some((ip, u16::from_be(found.sin6_port)).into())
        }
        _ => None,
    }
}

/// Writes an address as far as there is room for.
///
/// # Safety
/// `address` is null or has room for as many bytes as `len` says.
unsafe fn write_address(found: SocketAddr, address: *mut sockaddr, len: *mut socklen_t) {
    let mut bytes = Vec::new();
    let family = if found.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    bytes.extend(u16::try_from(family).expect("a small number").to_ne_bytes());
    bytes.extend(found.port().to_be_bytes());
    match found {
        SocketAddr::V4(found) => {
            bytes.extend(found.ip().octets());
            bytes.extend([0; 8]);
        }
        SocketAddr::V6(found) => {
            bytes.extend([0; 4]);
            bytes.extend(found.ip().octets());
            bytes.extend([0; 4]);
        }
    }
    if address.is_null() || len.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    let room = unsafe { len.read() } as usize;
    let count = bytes.len().min(room);
    // SAFETY: the caller's promise.
    unsafe { address.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), count) };
    // SAFETY: the caller's promise.
    unsafe { len.write(socklen_t::try_from(bytes.len()).expect("a small number")) };
}

unsafe extern "C" fn bind(
    data: *mut c_void,
    fd: c_int,
    address: *const sockaddr,
    _: socklen_t,
) -> c_int {
    // SAFETY: packetdrill's promise.
    let shim = unsafe { shim(data) };
    // SAFETY: packetdrill's promise.
    let local = unsafe { read_address(address) };
    shim.set_ends(local, None);
    returned(shim.call("bind", vec![integer(fd)]))
}

unsafe extern "C" fn listen(data: *mut c_void, fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: packetdrill's promise.
    returned(unsafe { shim(data) }.call("listen", vec![integer(fd), integer(backlog)]))
}

unsafe extern "C" fn accept(
    data: *mut c_void,
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: packetdrill's promise.
    let shim = unsafe { shim(data) };
    let accepted = shim.open("accept", vec![integer(fd)]);
    if let Some(peer) = accepted.ok().and_then(|fd| shim.peer(fd)) {
        // SAFETY: packetdrill's promise.
        unsafe { write_address(peer, address, len) };
    }
    returned(accepted)
}

unsafe extern "C" fn connect(
    data: *mut c_void,
    fd: c_int,
    address: *const sockaddr,
    _: socklen_t,
) -> c_int {
    // SAFETY: packetdrill's promise.
    let shim = unsafe { shim(data) };
    // SAFETY: packetdrill's promise.
    let remote = unsafe { read_address(address) };
    shim.set_ends(None, remote);
    returned(shim.call("connect", vec![integer(fd)]))
}

fn integer(number: impl Into<i64>) -> CallValue {
    CallValue::Integer(number.into())
}

/// Moves bytes, of whose content nothing is looked at: those sent are zeros, and those received are left where they are.
fn transfer(
    shim: &SocketShim,
    name: &str,
    fd: c_int,
    buffer: (bool, usize),
    flags: c_int,
) -> ssize_t {
    let (is_null, len) = buffer;
    let place = if is_null { CallValue::Word("NULL".to_owned()) } else { CallValue::Any };
    let len = CallValue::Integer(i64::try_from(len).unwrap_or(i64::MAX));
    let flags = message_flags(flags).into_iter().map(CallValue::Word).collect();
    returned_long(shim.call(name, vec![integer(fd), place, len, CallValue::Or(flags)]))
}

/// Whether the parts of a message are nowhere, and their bytes in all.
///
/// # Safety
/// There are `count` parts.
unsafe fn parts(vector: *const iovec, count: usize) -> (bool, usize) {
    let mut whole = (false, 0);
    for place in 0..count {
        // SAFETY: the caller's promise.
        let part = unsafe { vector.add(place) };
        // SAFETY: the caller's promise.
        let part = unsafe { part.read() };
        whole = (whole.0 || part.iov_base.is_null(), whole.1 + part.iov_len);
    }
    whole
}

unsafe extern "C" fn read(data: *mut c_void, fd: c_int, to: *mut c_void, len: usize) -> ssize_t {
    // SAFETY: packetdrill's promise.
    transfer(unsafe { shim(data) }, "recv", fd, (to.is_null(), len), 0)
}

unsafe extern "C" fn readv(data: *mut c_void, fd: c_int, to: *const iovec, n: c_int) -> ssize_t {
    // SAFETY: packetdrill's promise.
    let whole = unsafe { parts(to, usize::try_from(n).unwrap_or(0)) };
    // SAFETY: packetdrill's promise.
    transfer(unsafe { shim(data) }, "recv", fd, whole, 0)
}

unsafe extern "C" fn recv(
    data: *mut c_void,
    fd: c_int,
    to: *mut c_void,
    len: usize,
    flags: c_int,
) -> ssize_t {
    // SAFETY: packetdrill's promise.
    transfer(unsafe { shim(data) }, "recv", fd, (to.is_null(), len), flags)
}

unsafe extern "C" fn recvfrom(
    data: *mut c_void,
    fd: c_int,
    to: *mut c_void,
    len: usize,
    flags: c_int,
    _: *mut sockaddr,
    _: *mut socklen_t,
) -> ssize_t {
    // SAFETY: packetdrill's promise.
    transfer(unsafe { shim(data) }, "recv", fd, (to.is_null(), len), flags)
}

unsafe extern "C" fn recvmsg(
    data: *mut c_void,
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: packetdrill's promise.
    let parts_of = unsafe { &*message };
    // SAFETY: packetdrill's promise.
    let whole = unsafe { parts(parts_of.msg_iov, parts_of.msg_iovlen) };
    // No control messages.
    // SAFETY: packetdrill's promise.
    unsafe { (*message).msg_controllen = 0 };
    // SAFETY: packetdrill's promise.
    transfer(unsafe { shim(data) }, "recv", fd, whole, flags)
}

unsafe extern "C" fn write(
    data: *mut c_void,
    fd: c_int,
    from: *const c_void,
    len: usize,
) -> ssize_t {
    // SAFETY: packetdrill's promise.
    transfer(unsafe { shim(data) }, "send", fd, (from.is_null(), len), 0)
}

unsafe extern "C" fn writev(data: *mut c_void, fd: c_int, from: *const iovec, n: c_int) -> ssize_t {
    // SAFETY: packetdrill's promise.
    let whole = unsafe { parts(from, usize::try_from(n).unwrap_or(0)) };
    // SAFETY: packetdrill's promise.
    transfer(unsafe { shim(data) }, "send", fd, whole, 0)
}

unsafe extern "C" fn send(
    data: *mut c_void,
    fd: c_int,
    from: *const c_void,
    len: usize,
    flags: c_int,
) -> ssize_t {
    // SAFETY: packetdrill's promise.
    transfer(unsafe { shim(data) }, "send", fd, (from.is_null(), len), flags)
}

unsafe extern "C" fn sendto(
    data: *mut c_void,
    fd: c_int,
    from: *const c_void,
    len: usize,
    flags: c_int,
    _: *const sockaddr,
    _: socklen_t,
) -> ssize_t {
    // SAFETY: packetdrill's promise.
    transfer(unsafe { shim(data) }, "send", fd, (from.is_null(), len), flags)
}

unsafe extern "C" fn sendmsg(
    data: *mut c_void,
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: packetdrill's promise.
    let parts_of = unsafe { &*message };
    // SAFETY: packetdrill's promise.
    let whole = unsafe { parts(parts_of.msg_iov, parts_of.msg_iovlen) };
    // SAFETY: packetdrill's promise.
    transfer(unsafe { shim(data) }, "send", fd, whole, flags)
}

unsafe extern "C" fn fcntl(data: *mut c_void, fd: c_int, command: c_int, flags: c_long) -> c_int {
    let name = match command {
        libc::F_GETFL => "F_GETFL",
        libc::F_SETFL => "F_SETFL",
        _ => "another command",
    };
    let is_nonblocking = flags & c_long::from(libc::O_NONBLOCK) != 0;
    let flag = if is_nonblocking { "O_NONBLOCK" } else { "O_RDWR" };
    let arguments = [name, flag].map(|word| CallValue::Word(word.to_owned()));
    // SAFETY: packetdrill's promise.
    let shim = unsafe { shim(data) };
    returned(shim.call("fcntl", [integer(fd)].into_iter().chain(arguments).collect()))
}

unsafe extern "C" fn ioctl(
    data: *mut c_void,
    fd: c_int,
    command: c_ulong,
    to: *mut c_int,
) -> c_int {
    let name = match command {
        libc::FIONREAD => "SIOCINQ",
        libc::TIOCOUTQ => "SIOCOUTQ",
        _ => "another command",
    };
    // SAFETY: packetdrill's promise.
    let queued = unsafe { shim(data) }.queued(fd.into(), name);
    if let Ok(queued) = queued {
        // SAFETY: packetdrill's promise.
        unsafe { to.write(c_int::try_from(queued).unwrap_or(c_int::MAX)) };
    }
    returned(queued.map(|_| 0))
}

unsafe extern "C" fn close(data: *mut c_void, fd: c_int) -> c_int {
    // SAFETY: packetdrill's promise.
    returned(unsafe { shim(data) }.call("close", vec![integer(fd)]))
}

unsafe extern "C" fn shutdown(data: *mut c_void, fd: c_int, how: c_int) -> c_int {
    let how = match how {
        libc::SHUT_RD => "SHUT_RD",
        libc::SHUT_WR => "SHUT_WR",
        _ => "SHUT_RDWR",
    };
    let arguments = vec![integer(fd), CallValue::Word(how.to_owned())];
    // SAFETY: packetdrill's promise.
    returned(unsafe { shim(data) }.call("shutdown", arguments))
}

unsafe extern "C" fn getsockopt(
    data: *mut c_void,
    fd: c_int,
    level: c_int,
    option: c_int,
    to: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let name = option_name(level, option).unwrap_or("another option");
    // SAFETY: packetdrill's promise.
    let found = unsafe { shim(data) }.option(fd.into(), name);
    if let Ok(value) = found {
        // SAFETY: packetdrill's promise: an option that is a number has room for one.
        unsafe { to.cast::<c_int>().write(c_int::try_from(value).unwrap_or(c_int::MAX)) };
        // SAFETY: packetdrill's promise.
        unsafe { len.write(4) };
    }
    returned(found.map(|_| 0))
}

unsafe extern "C" fn setsockopt(
    data: *mut c_void,
    fd: c_int,
    level: c_int,
    option: c_int,
    from: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: packetdrill's promise.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), len as usize) };
    let number = |at: usize| {
        let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
        i64::from(word.map_or_else(|| i32::from(bytes[0]), i32::from_ne_bytes))
    };
    let name = option_name(level, option).unwrap_or("another option");
    let named = |name: &str, value| CallValue::Named(name.to_owned(), Box::new(integer(value)));
    let value = match name {
        "TCP_CONGESTION" => {
            let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            CallValue::Text(String::from_utf8_lossy(text).into_owned())
        }
        "SO_LINGER" => {
            CallValue::Fields(vec![named("onoff", number(0)), named("linger", number(4))])
        }
        _ if bytes.is_empty() => CallValue::Any,
        _ => integer(number(0)),
    };
    let arguments = vec![integer(fd), CallValue::Any, CallValue::Word(name.to_owned()), value];
    // SAFETY: packetdrill's promise.
    returned(unsafe { shim(data) }.call("setsockopt", arguments))
}

unsafe extern "C" fn poll(
    data: *mut c_void,
    to: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
) -> c_int {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: packetdrill's promise.
    let entries = unsafe { std::slice::from_raw_parts_mut(to, count) };
    let mut polled: Vec<_> =
        entries.iter().map(|entry| (i64::from(entry.fd), entry.events)).collect();
    // SAFETY: packetdrill's promise.
    let answer = unsafe { shim(data) }.poll(&mut polled, timeout);
    for (entry, (_, events)) in entries.iter_mut().zip(polled) {
        entry.revents = events;
    }
    returned(answer)
}

unsafe extern "C" fn netdev_send(data: *mut c_void, from: *const c_void, count: usize) -> c_int {
    // SAFETY: packetdrill's promise.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), count) };
    // SAFETY: packetdrill's promise.
    unsafe { shim(data) }.inject(bytes);
    0
}

unsafe extern "C" fn netdev_receive(
    data: *mut c_void,
    to: *mut c_void,
    count: *mut usize,
    time_us: *mut c_longlong,
) -> c_int {
    // SAFETY: packetdrill's promise.
    let (bytes, at) = unsafe { shim(data) }.next_packet().unwrap_or_default();
    // SAFETY: packetdrill's promise: it says how much room there is.
    let len = bytes.len().min(unsafe { count.read() });
    // SAFETY: packetdrill's promise.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), len) };
    // Without bytes packetdrill reports that nothing came.
    // SAFETY: packetdrill's promise.
    unsafe { count.write(len) };
    // SAFETY: packetdrill's promise.
    unsafe { time_us.write(at.cast_signed()) };
    0
}

unsafe extern "C" fn usleep(data: *mut c_void, us: c_uint) -> c_int {
    // SAFETY: packetdrill's promise.
    unsafe { shim(data) }.sleep(Span::from_us(us.into()));
    0
}

unsafe extern "C" fn gettimeofday(data: *mut c_void, to: *mut timeval, _: *mut c_void) -> c_int {
    // SAFETY: packetdrill's promise.
    let now = unsafe { shim(data) }.now_us().cast_signed();
    // SAFETY: packetdrill's promise.
    unsafe { to.write(timeval { tv_sec: now / 1_000_000, tv_usec: now % 1_000_000 }) };
    0
}
