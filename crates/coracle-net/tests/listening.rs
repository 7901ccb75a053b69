//! Listening: rows F2 (two families, errors that name the cause), F5 (Unix sockets and their files), F10 (one
//! port, many sockets) and F11 (options), against the kernel itself.

use coracle_net::{Address, KeepAlive, ListenOptions, ListenSocket, ToAddresses};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

// --- F2: two families, and errors that name the cause ---------------------------------------------------

#[test]
fn f2_every_interface_is_both_families() {
    for place in [":0", "*:0"] {
        let socket = listen(place);
        let port = port(&socket);
        let four = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let (_, peer) = accept(&socket).unwrap();
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
        assert_eq!(peer, SocketAddr::from((mapped, four.local_addr().unwrap().port())));
        let six = TcpStream::connect((Ipv6Addr::LOCALHOST, port)).unwrap();
        let (_, peer) = accept(&socket).unwrap();
        assert_eq!(peer, six.local_addr().unwrap());
    }
}

#[test]
fn f2_only_v6_leaves_the_port_to_others_in_ipv4() {
    let options = ListenOptions::new().only_v6(true);
    // Somebody else may have been given that port in IPv4 just now, but not each time.
    let both = (0..5).any(|_| {
        let six = ListenSocket::bind(&address("[::]:0"), &options).unwrap();
        let Ok(four) = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port(&six))) else { return false };
        TcpStream::connect((Ipv4Addr::LOCALHOST, port(&six))).unwrap();
        assert!(wait(&four), "the connection went elsewhere");
        assert_eq!(accept(&six).unwrap_err().kind(), ErrorKind::TimedOut);
        true
    });
    assert!(both);
}

#[test]
fn f2_port_in_use_is_named_in_both_families() {
    for (taken, wanted) in [
        ("127.0.0.1:0", "127.0.0.1"),
        ("[::1]:0", "[::1]"),
        ("[::]:0", "[::]"),
        ("0.0.0.0:0", "0.0.0.0"),
        ("[::]:0", "127.0.0.1"), // the one takes both families
        ("127.0.0.1:0", "[::]"), // and so would this
    ] {
        let first = listen(taken);
        let wanted = format!("{wanted}:{}", port(&first));
        let error = ListenSocket::bind(&address(&wanted), &ListenOptions::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
        let text = "address already in use (another program listens there)";
        assert_eq!(error.to_string(), format!("cannot listen on {wanted}: {text}"));
    }
}

#[test]
fn f2_name_listens_on_all_it_stands_for() {
    let expected = "localhost:0".to_addresses().unwrap();
    let sockets = ListenSocket::bind_all("localhost:0", &ListenOptions::new()).unwrap();
    assert!(!sockets.is_empty() && sockets.len() <= expected.len());
    for socket in &sockets {
        assert_eq!(port(socket), port(&sockets[0]));
        let ip = socket.local_address().ip().unwrap();
        assert!(expected.iter().any(|address| address.ip().unwrap().ip() == ip.ip()), "{ip}");
        TcpStream::connect(ip).unwrap();
        accept(socket).unwrap();
    }
}

#[test]
fn f2_address_of_another_machine_is_named() {
    // RFC 5737 and RFC 3849 reserve these for texts like this one: no interface has them.
    for place in ["192.0.2.1:0", "[2001:db8::1]:0"] {
        let error = ListenSocket::bind_all(place, &ListenOptions::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrNotAvailable, "{error}");
        let text = "address not available (no interface of this machine has it)";
        assert_eq!(error.to_string(), format!("cannot listen on {place}: {text}"));
    }
}

#[test]
fn f2_low_port_without_the_capability_is_named() {
    let first_free = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap();
    let first_free: u16 = first_free.trim().parse().unwrap();
    if first_free <= 1 {
        return eprintln!("skipped: everybody may listen on every port here");
    }
    // Nobody gets as far as binding it, whether it is free or not.
    for place in ["127.0.0.1:1", "[::1]:1"] {
        let error = as_nobody(|| ListenSocket::bind(&address(place), &ListenOptions::new()));
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        let text =
            format!("permission denied (ports below {first_free} need CAP_NET_BIND_SERVICE)");
        assert_eq!(error.to_string(), format!("cannot listen on {place}: {text}"));
    }
}

// --- F5: Unix sockets and their files -------------------------------------------------------------------

#[test]
fn f5_path_listens_and_its_file_goes_with_it() {
    let directory = Directory::new();
    let path = directory.path("a.sock");
    let socket = listen(&path);
    assert_eq!(socket.local_address().path(), Some(path.as_path()));
    assert!(is_socket(&path));
    UnixStream::connect(&path).unwrap();
    assert!(wait(&socket));
    drop(socket);
    assert!(directory.is_empty());
}

#[test]
fn f5_file_stays_until_the_last_clone_is_dropped() {
    let directory = Directory::new();
    let path = directory.path("a.sock");
    let socket = listen(&path);
    let clone = socket.try_clone().unwrap();
    drop(socket);
    UnixStream::connect(&path).unwrap();
    let file = clone.file().unwrap();
    drop(clone.into_fd());
    assert!(is_socket(&path));
    drop(file);
    assert!(directory.is_empty());
}

#[test]
fn f5_file_may_be_kept() {
    let directory = Directory::new();
    let socket = listen(directory.path("kept"));
    socket.file().unwrap().keep();
    drop(socket);
    assert!(is_socket(&directory.path("kept")));
    drop(listen(directory.path("given")).into_fd());
    assert!(is_socket(&directory.path("given")));
}

#[test]
fn f5_stale_socket_is_replaced() {
    let directory = Directory::new();
    for name in ["stream", "datagram"] {
        let path = directory.path(name);
        match name {
            "stream" => drop(UnixListener::bind(&path).unwrap()),
            _ => drop(UnixDatagram::bind(&path).unwrap()),
        }
        assert!(is_socket(&path), "nothing stale was left");
        let socket = listen(&path);
        UnixStream::connect(&path).unwrap();
        assert!(wait(&socket));
    }
    assert!(directory.is_empty());
}

#[test]
fn f5_live_socket_is_refused_and_lives_on() {
    let directory = Directory::new();
    let path = directory.path("a.sock");
    let live = UnixListener::bind(&path).unwrap();
    let error = refusal(&path);
    let text = "address already in use (another program listens there)";
    assert_eq!(error, format!("cannot listen on unix:{}: {text}", path.display()));
    live.accept().unwrap(); // the question whether somebody listens
    let client = UnixStream::connect(&path).unwrap();
    drop((live.accept().unwrap(), client));
}

#[test]
fn f5_live_socket_with_a_full_queue_is_refused() {
    let directory = Directory::new();
    let path = directory.path("a.sock");
    let busy = ListenSocket::bind(&address(&path), &ListenOptions::new().backlog(0)).unwrap();
    let _waiting = UnixStream::connect(&path).unwrap();
    assert_eq!(try_connect(&path).unwrap_err(), Errno::AGAIN, "the queue is not full");
    assert!(refusal(&path).ends_with("(another program listens there)"));
    drop(busy);
}

#[test]
fn f5_live_socket_of_another_type_is_refused() {
    let directory = Directory::new();
    let path = directory.path("a.sock");
    let live = UnixDatagram::bind(&path).unwrap();
    assert!(refusal(&path).ends_with("(another program listens there)"));
    UnixDatagram::unbound().unwrap().send_to(b"ahoy", &path).unwrap();
    drop(live);
}

#[test]
fn f5_socket_that_may_not_be_asked_is_refused() {
    let directory = Directory::new();
    fs::set_permissions(directory.path(""), fs::Permissions::from_mode(0o777)).unwrap();
    let path = directory.path("a.sock");
    drop(UnixListener::bind(&path).unwrap()); // stale, but who is to know?
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    let error = as_nobody(|| ListenSocket::bind(&address(&path), &ListenOptions::new()));
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(error.to_string().ends_with("(remove it if none does)"), "{error}");
    assert!(is_socket(&path));
}

#[test]
fn f5_file_that_is_no_socket_is_refused_and_untouched() {
    let directory = Directory::new();
    fs::write(directory.path("file"), "precious").unwrap();
    fs::create_dir(directory.path("directory")).unwrap();
    drop(UnixListener::bind(directory.path("stale")).unwrap());
    symlink(directory.path("stale"), directory.path("link")).unwrap();
    symlink(directory.path("nowhere"), directory.path("dangling")).unwrap();
    for (name, kind) in [
        ("file", "a file"),
        ("directory", "a directory"),
        ("link", "a symbolic link"),
        ("dangling", "a symbolic link"),
    ] {
        let path = directory.path(name);
        let error = refusal(&path);
        let text = format!("{}: there is {kind} of that name, not a socket", path.display());
        assert!(error.contains(&text), "{error}");
        assert!(path.symlink_metadata().is_ok(), "{name} is gone");
    }
    assert_eq!(fs::read_to_string(directory.path("file")).unwrap(), "precious");
    assert!(is_socket(&directory.path("stale")));
}

#[test]
fn f5_mode_is_what_was_asked_whatever_the_umask() {
    let directory = Directory::new();
    let path = directory.path("a.sock");
    for mode in [0o600, 0o660, 0o666, 0o777, 0o000] {
        let socket = listen_with(&path, &ListenOptions::new().unix_mode(mode));
        assert_eq!(mode_of(&path), mode);
        drop(socket);
    }
    let error = ListenSocket::bind(&address(&path), &ListenOptions::new().unix_mode(660));
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("0o660, not 660"), "{error}");
    assert!(directory.is_empty());
}

#[test]
fn f5_mode_is_never_wider_than_asked() {
    let directory = Directory::new();
    let path = directory.path("a.sock");
    let ended = AtomicBool::new(false);
    let looks = thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut looks = 0;
            while !ended.load(Ordering::Relaxed) {
                if let Ok(found) = path.symlink_metadata() {
                    let mode = found.permissions().mode() & 0o777;
                    assert_eq!(mode & !0o600, 0, "{mode:o}");
                    looks += 1;
                }
            }
            looks
        });
        for _ in 0..2000 {
            drop(listen_with(&path, &ListenOptions::new().unix_mode(0o600)));
        }
        ended.store(true, Ordering::Relaxed);
        watcher.join().unwrap()
    });
    assert!(looks > 0, "the watcher saw nothing");
}

#[test]
fn f5_abstract_name_needs_no_file() {
    let name = format!("coracle-listening-{}", std::process::id());
    let place = format!("unix:@{name}");
    let socket = listen(&place);
    assert_eq!(socket.local_address().to_string(), place);
    assert!(socket.file().is_none());
    UnixStream::connect_addr(&UnixAddr::from_abstract_name(&name).unwrap()).unwrap();
    assert!(wait(&socket));
    let error = ListenSocket::bind_all(&place, &ListenOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    let text = "address already in use (another program listens there)";
    assert_eq!(error.to_string(), format!("cannot listen on {place}: {text}"));
    drop(socket);
    listen(&place); // free again at once
}

#[test]
fn f5_foreign_file_is_not_removed() {
    let directory = Directory::new();
    let path = directory.path("a.sock");
    let socket = listen(&path);
    fs::remove_file(&path).unwrap();
    fs::write(&path, "foreign").unwrap();
    drop(socket);
    assert_eq!(fs::read_to_string(&path).unwrap(), "foreign");
    fs::remove_file(&path).unwrap();

    let socket = listen(&path);
    let file = socket.file();
    drop(socket.into_fd());
    fs::remove_file(&path).unwrap();
    let foreign = UnixListener::bind(&path).unwrap();
    drop(file);
    UnixStream::connect(&path).unwrap();
    drop(foreign);
}

#[test]
fn f5_of_several_that_start_at_once_one_listens() {
    let directory = Directory::new();
    let path = directory.path("a.sock");
    for round in 0..200 {
        drop(UnixListener::bind(&path).unwrap()); // all of them find a stale one
        let start = Barrier::new(4);
        let try_to_listen = || {
            start.wait();
            ListenSocket::bind(&address(&path), &ListenOptions::new())
        };
        let sockets = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(try_to_listen)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(sockets.iter().flatten().count(), 1, "round {round}");
        UnixStream::connect(&path).unwrap(); // only that one can have answered
        drop(sockets);
        assert!(directory.is_empty());
    }
}

#[test]
fn f5_who_comes_second_waits_for_the_first_but_not_for_ever() {
    let directory = Directory::new();
    let first = fs::File::open(directory.path("")).unwrap();
    rustix::fs::flock(&first, FlockOperation::LockExclusive).unwrap();
    let start = Instant::now();
    let socket = listen(directory.path("a.sock"));
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
    drop(socket);
    rustix::fs::flock(&first, FlockOperation::Unlock).unwrap();
    let at_once = || {
        let start = Instant::now();
        listen(directory.path("a.sock"));
        start.elapsed() < Duration::from_secs(1)
    };
    // Other work of the machine may hold up one of them, not all.
    assert!((0..100).any(|_| at_once()));
}

#[test]
fn f5_directory_that_is_missing_or_closed_is_named() {
    let directory = Directory::new();
    let path = directory.path("none/a.sock");
    let error = ListenSocket::bind(&address(&path), &ListenOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let missing = directory.path("none");
    let text = format!("no such directory (make {} first)", missing.display());
    assert!(error.to_string().ends_with(&text), "{error}");

    fs::create_dir(&missing).unwrap();
    fs::set_permissions(&missing, fs::Permissions::from_mode(0o555)).unwrap();
    let error = as_nobody(|| ListenSocket::bind(&address(&path), &ListenOptions::new()));
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    let text = format!("permission denied (no right to make a file in {})", missing.display());
    assert!(error.to_string().ends_with(&text), "{error}");
}

#[test]
fn f5_inherited_socket_is_checked() {
    let directory = Directory::new();
    let file = fs::File::create(directory.path("file")).unwrap();
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let connected = UnixStream::pair().unwrap().0;
    for (descriptor, cause) in [
        (OwnedFd::from(file), "it is not a socket"),
        (OwnedFd::from(datagrams), "it is not a stream socket"),
        (OwnedFd::from(connected), "it does not listen"),
    ] {
        let error = ListenSocket::from_fd(descriptor).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().ends_with(cause), "{error}");
    }

    let path = directory.path("a.sock");
    let inherited = OwnedFd::from(UnixListener::bind(&path).unwrap());
    rustix::io::fcntl_setfd(&inherited, FdFlags::empty()).unwrap();
    let socket = ListenSocket::from_fd(inherited).unwrap();
    assert_eq!(socket.local_address().path(), Some(path.as_path()));
    assert_eq!(rustix::io::fcntl_getfd(&socket).unwrap(), FdFlags::CLOEXEC);
    assert!(rustix::fs::fcntl_getfl(&socket).unwrap().contains(OFlags::NONBLOCK));
    assert!(socket.file().is_none());
    drop(socket);
    assert!(is_socket(&path), "removed a file that it did not make");
}

// --- F10: one port, many sockets ------------------------------------------------------------------------

#[test]
fn f10_two_sockets_share_a_port_and_both_get_connections() {
    let options = ListenOptions::new().reuse_port(true);
    for place in ["127.0.0.1:0", "[::1]:0"] {
        let first = listen_with(place, &options);
        let second = ListenSocket::bind(first.local_address(), &options).unwrap();
        assert_eq!(first.local_address(), second.local_address());
        let ip = first.local_address().ip().unwrap();
        // The kernel hashes the peer's port: that all go one way happens once in 2 to the 99th.
        let clients: Vec<_> = (0..100).map(|_| TcpStream::connect(ip).unwrap()).collect();
        let counts = [drain(&first), drain(&second)];
        assert_eq!(counts[0] + counts[1], clients.len());
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
        drop(first);
        TcpStream::connect(ip).unwrap();
        assert_eq!(drain(&second), 1);
    }
}

#[test]
fn f10_port_is_shared_only_with_those_who_share() {
    let alone = ListenOptions::new();
    let shared = ListenOptions::new().reuse_port(true);
    for (first, second) in [(&alone, &shared), (&shared, &alone)] {
        let first = listen_with("127.0.0.1:0", first);
        let error = ListenSocket::bind(first.local_address(), second).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
    }
}

#[test]
fn f10_clones_share_one_queue() {
    let directory = Directory::new();
    let first = listen(directory.path("a.sock"));
    let second = first.try_clone().unwrap();
    let _clients = [0, 1].map(|_| UnixStream::connect(directory.path("a.sock")).unwrap());
    for socket in [&first, &second] {
        net::accept(socket).unwrap();
    }
    assert_eq!(net::accept(&first).unwrap_err(), Errno::AGAIN);
}

// --- F11: options ---------------------------------------------------------------------------------------

#[test]
fn f11_defaults_are_set() {
    let socket = listen("[::]:0"); // of any other, the kernel says that it takes IPv6 only
    assert!(sockopt::socket_acceptconn(&socket).unwrap());
    assert!(sockopt::socket_reuseaddr(&socket).unwrap());
    assert!(!sockopt::socket_reuseport(&socket).unwrap());
    assert!(!sockopt::ipv6_v6only(&socket).unwrap());
    assert!(sockopt::tcp_nodelay(&socket).unwrap());
    assert!(!sockopt::socket_keepalive(&socket).unwrap());
    assert!(rustix::fs::fcntl_getfl(&socket).unwrap().contains(OFlags::NONBLOCK));
    assert_eq!(rustix::io::fcntl_getfd(&socket).unwrap(), FdFlags::CLOEXEC);
}

#[test]
fn f11_options_are_set_and_connections_inherit_them() {
    let probes = KeepAlive {
        idle: Duration::from_secs(77),
        interval: Some(Duration::from_secs(7)),
        count: Some(5),
    };
    let options = ListenOptions::new()
        .reuse_port(true)
        .only_v6(true)
        .no_delay(false)
        .keep_alive(probes)
        .receive_buffer_bytes(10_000)
        .send_buffer_bytes(12_000);
    let socket = listen_with("[::]:0", &options);
    assert!(sockopt::socket_reuseport(&socket).unwrap());
    assert!(sockopt::ipv6_v6only(&socket).unwrap());
    check_connection_options(&socket, false);
    let _client = TcpStream::connect((Ipv6Addr::LOCALHOST, port(&socket))).unwrap();
    check_connection_options(&accept(&socket).unwrap().0, false);

    let socket = listen_with("[::1]:0", &options.no_delay(true));
    let _client = TcpStream::connect(socket.local_address().ip().unwrap()).unwrap();
    check_connection_options(&accept(&socket).unwrap().0, true);
}

fn check_connection_options(socket: &impl AsFd, no_delay: bool) {
    assert_eq!(sockopt::tcp_nodelay(socket).unwrap(), no_delay);
    assert!(sockopt::socket_keepalive(socket).unwrap());
    assert_eq!(sockopt::tcp_keepidle(socket).unwrap(), Duration::from_secs(77));
    assert_eq!(sockopt::tcp_keepintvl(socket).unwrap(), Duration::from_secs(7));
    assert_eq!(sockopt::tcp_keepcnt(socket).unwrap(), 5);
    // The kernel doubles them.
    assert_eq!(sockopt::socket_recv_buffer_size(socket).unwrap(), 20_000);
    assert_eq!(sockopt::socket_send_buffer_size(socket).unwrap(), 24_000);
}

#[test]
fn f11_deferred_connection_is_accepted_once_it_has_spoken() {
    let options = ListenOptions::new().defer_accept(Duration::from_secs(60));
    let socket = listen_with("127.0.0.1:0", &options);
    let place = socket.local_address().ip().unwrap();
    let _silent = TcpStream::connect(place).unwrap();
    let mut speaker = TcpStream::connect(place).unwrap();
    io::Write::write_all(&mut speaker, b"ahoy").unwrap();
    let (_, first) = accept(&socket).unwrap();
    assert_eq!(first, speaker.local_addr().unwrap(), "who came first has not spoken");
}

#[test]
fn f11_backlog_bounds_those_who_wait() {
    let directory = Directory::new();
    let path = directory.path("a.sock");
    let _socket = listen_with(&path, &ListenOptions::new().backlog(3));
    // The kernel lets one more wait than it was told.
    let waiting: Vec<_> = (0..4).map(|_| try_connect(&path).unwrap()).collect();
    assert_eq!(try_connect(&path).unwrap_err(), Errno::AGAIN);
    drop(waiting);
}

#[test]
fn f11_option_out_of_range_is_named() {
    let options = ListenOptions::new().keep_alive(Duration::ZERO);
    let error = ListenSocket::bind(&address("127.0.0.1:0"), &options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let text = error.to_string();
    assert!(
        text.starts_with("cannot listen on 127.0.0.1:0: keep_alive(KeepAlive { idle: 0ns, "),
        "{text}"
    );
    assert!(text.ends_with("(1 to 32767 seconds, 127 probes)"), "{text}");
}

#[test]
fn f11_options_that_a_socket_does_not_have_are_passed_over() {
    let options =
        ListenOptions::new().reuse_port(true).only_v6(true).no_delay(true).unix_mode(0o600);
    let directory = Directory::new();
    listen_with(directory.path("a.sock"), &options);
    listen_with("127.0.0.1:0", &options);
}

#[test]
fn f11_restart_does_not_wait_for_old_connections() {
    let socket = listen("127.0.0.1:0");
    let place = socket.local_address().clone();
    let client = TcpStream::connect(place.ip().unwrap()).unwrap();
    drop(accept(&socket).unwrap()); // the server closes first: its end lingers in TIME_WAIT
    let mut end = [0];
    assert_eq!(io::Read::read(&mut &client, &mut end).unwrap(), 0);
    drop(client);
    drop(socket);
    ListenSocket::bind(&place, &ListenOptions::new()).unwrap();
}

// --- What the tests use ---------------------------------------------------------------------------------

fn listen(place: impl ToAddresses) -> ListenSocket {
    listen_with(place, &ListenOptions::new())
}

fn listen_with(place: impl ToAddresses, options: &ListenOptions) -> ListenSocket {
    ListenSocket::bind_all(place, options).unwrap().remove(0)
}

fn address(place: impl ToAddresses) -> Address {
    place.to_addresses().unwrap().remove(0)
}

/// Why a path is in the way.
fn refusal(path: &Path) -> String {
    let error = ListenSocket::bind(&address(path), &ListenOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
    error.to_string()
}

fn port(socket: &ListenSocket) -> u16 {
    socket.local_address().ip().unwrap().port()
}

/// Whether a connection waits to be accepted, or comes soon.
fn wait(socket: &impl AsFd) -> bool {
    let soon = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
    let mut sockets = [PollFd::new(socket, PollFlags::IN)];
    rustix::event::poll(&mut sockets, Some(&soon)).unwrap() == 1
}

fn accept(socket: &ListenSocket) -> io::Result<(TcpStream, SocketAddr)> {
    if !wait(socket) {
        return Err(ErrorKind::TimedOut.into());
    }
    let (stream, peer) = net::acceptfrom(socket)?;
    Ok((stream.into(), peer.unwrap().try_into()?))
}

/// Accepts all that wait.
fn drain(socket: &ListenSocket) -> usize {
    std::iter::from_fn(|| accept(socket).ok()).count()
}

/// Connects without waiting.
fn try_connect(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn is_socket(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket())
}

fn mode_of(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().permissions().mode() & 0o777
}

/// Runs something without the rights of root: on a thread of its own, since rights are a thread's on Linux.
fn as_nobody<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    use rustix::thread::Uid;
    let run = || {
        if rustix::process::geteuid().is_root() {
            let nobody = Uid::from_raw(65534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        }
        run()
    };
    thread::scope(|scope| scope.spawn(run).join().unwrap())
}

/// A directory of one test's own.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("coracle-listening-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Directory(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn is_empty(&self) -> bool {
        fs::read_dir(&self.0).unwrap().next().is_none()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
