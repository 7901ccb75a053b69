//! `std::net` and `std::os::unix::net`, unmodified.

use crate::harness::Harness;
use crate::helping::{Folder, pair};
use coracle_coro::{spawn, yield_now};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

/// How many coroutines talk at once.
const MANY: usize = 50;

pub(crate) fn s32_std_tcp_echo(h: &Harness) {
    h.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let server = spawn(move || {
            let serving: Vec<_> = (0..MANY)
                .map(|_| {
                    let (mut stream, _) = listener.accept().expect("accept");
                    spawn(move || {
                        let mut space = [0; 256];
                        loop {
                            let count = stream.read(&mut space).expect("read");
                            if count == 0 {
                                return;
                            }
                            stream.write_all(&space[..count]).expect("write");
                        }
                    })
                })
                .collect();
            serving.into_iter().for_each(|one| one.join().expect("a connection"));
        });
        let clients: Vec<_> = (0..MANY)
            .map(|me| {
                spawn(move || {
                    let mut stream = TcpStream::connect(address).expect("connect");
                    for round in 0..10 {
                        let line = format!("{me}: {round}\n");
                        stream.write_all(line.as_bytes()).expect("write");
                        let mut back = vec![0; line.len()];
                        stream.read_exact(&mut back).expect("read");
                        assert_eq!(back, line.as_bytes());
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|one| one.join().expect("a client"));
        server.join().expect("the server");
        Ok(())
    });
}

/// A write returns when everything is with the kernel, however slowly the other end reads.
pub(crate) fn s32_big_write_is_one_call(h: &Harness) {
    const LEN: usize = 4 << 20;
    h.run(|| {
        let (mut near, mut far) = pair()?;
        let writer = spawn(move || {
            let bytes: Vec<u8> = (0..LEN).map(|index| (index % 251) as u8).collect();
            near.write(&bytes).expect("write")
        });
        let mut all = Vec::new();
        far.read_to_end(&mut all)?;
        assert_eq!(writer.join().expect("the writer"), LEN);
        assert_eq!(all.len(), LEN);
        assert!(all.iter().enumerate().all(|(index, &byte)| byte == (index % 251) as u8));
        Ok(())
    });
}

pub(crate) fn s32_vectored_write_is_one_call(h: &Harness) {
    const LEN: usize = 1 << 20;
    h.run(|| {
        let (mut near, mut far) = pair()?;
        let writer = spawn(move || {
            let parts = [vec![1; LEN], vec![2; LEN], vec![3; LEN]];
            let slices = [0, 1, 2].map(|index| IoSlice::new(&parts[index]));
            near.write_vectored(&slices).expect("write")
        });
        let (mut one, mut two) = (vec![0_u8; LEN], vec![0_u8; 7]);
        let mut all = Vec::new();
        loop {
            let mut slices = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
            match far.read_vectored(&mut slices)? {
                0 => break,
                count => {
                    all.extend(one.iter().chain(&two).copied().take(count));
                }
            }
        }
        assert_eq!(writer.join().expect("the writer"), 3 * LEN);
        assert_eq!(all.len(), 3 * LEN);
        assert!(all.iter().enumerate().all(|(index, &byte)| usize::from(byte) == index / LEN + 1));
        Ok(())
    });
}

/// A reader and a writer of one socket, and a clone of it: three coroutines on one descriptor.
pub(crate) fn s32_reader_and_writer_of_one_socket(h: &Harness) {
    h.run(|| {
        let (near, far) = pair()?;
        let (near, far) = (Rc::new(near), Rc::new(far));
        let echo = {
            let far = Rc::clone(&far);
            spawn(move || io::copy(&mut &*far, &mut &*far).expect("copy"))
        };
        let reader = {
            let near = Rc::clone(&near);
            spawn(move || {
                let mut text = String::new();
                (&*near).read_to_string(&mut text).expect("read");
                text
            })
        };
        let clone = near.try_clone()?;
        let writer = spawn(move || (&clone).write_all(b"hello, ").expect("write"));
        writer.join().expect("the writer");
        (&*near).write_all(b"world")?;
        near.shutdown(Shutdown::Write)?;
        assert_eq!(echo.join().expect("echo"), 12);
        far.shutdown(Shutdown::Write)?;
        assert_eq!(reader.join().expect("the reader"), "hello, world");
        Ok(())
    });
}

pub(crate) fn s32_peek_leaves_what_it_sees(h: &Harness) {
    h.run(|| {
        let (mut near, mut far) = pair()?;
        let peeking = spawn(move || {
            let mut space = [0; 8];
            let seen = far.peek(&mut space).expect("peek");
            assert_eq!(&space[..seen], b"ahoy");
            assert_eq!(far.read(&mut space).expect("read"), 4);
        });
        yield_now();
        near.write_all(b"ahoy")?;
        peeking.join().expect("it peeks");
        Ok(())
    });
}

pub(crate) fn s32_udp(h: &Harness) {
    h.run(|| {
        let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
        let (here, there) = (one.local_addr()?, other.local_addr()?);
        let receiver = spawn(move || {
            let mut space = [0; 16];
            let (seen, from) = other.peek_from(&mut space).expect("peek");
            assert_eq!((seen, from), (4, here));
            let (count, from) = other.recv_from(&mut space).expect("receive");
            assert_eq!((&space[..count], from), (&b"ahoy"[..], here));
            other.connect(from).expect("connect");
            assert_eq!(other.recv(&mut space).expect("receive"), 0, "an empty datagram");
            assert_eq!(other.send(b"bye").expect("send"), 3);
        });
        yield_now();
        assert_eq!(one.send_to(b"ahoy", there)?, 4);
        yield_now();
        assert_eq!(one.send_to(b"", there)?, 0);
        let mut space = [0; 16];
        assert_eq!(one.recv(&mut space)?, 3);
        receiver.join().expect("the receiver");
        Ok(())
    });
}

pub(crate) fn s32_unix_streams(h: &Harness) {
    h.run(|| {
        let (mut near, mut far) = UnixStream::pair()?;
        let echo = spawn(move || {
            let mut space = [0; 3];
            while let Ok(count @ 1..) = far.read(&mut space) {
                far.write_all(&space[..count]).expect("write");
            }
        });
        yield_now();
        near.write_all(b"hello")?;
        let mut back = [0; 5];
        near.read_exact(&mut back)?;
        assert_eq!(&back, b"hello");
        drop(near);
        echo.join().expect("echo");
        Ok(())
    });
}

/// A connect to a Unix socket whose backlog is full waits until somebody accepts.
pub(crate) fn s32_unix_connect_waits_for_the_backlog(h: &Harness) {
    let folder = Folder::new();
    let path = folder.0.join("door");
    h.run(move || {
        let listener = UnixListener::bind(&path)?;
        // SAFETY: a listening socket: this only makes its backlog short.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let connecting: Vec<_> = (0..4)
            .map(|_| {
                let path = path.clone();
                spawn(move || UnixStream::connect(path).expect("connect"))
            })
            .collect();
        yield_now();
        for _ in 0..4 {
            listener.accept()?;
        }
        connecting.into_iter().for_each(|one| drop(one.join().expect("connected")));
        Ok(())
    });
}

/// A Unix datagram socket says that it is writable though its peer has no room.
pub(crate) fn s32_unix_datagrams_wait_for_room(h: &Harness) {
    const COUNT: usize = 1000;
    let folder = Folder::new();
    let path = folder.0.join("box");
    h.run(move || {
        let inbox = UnixDatagram::bind(&path)?;
        let sender = spawn(move || {
            let socket = UnixDatagram::unbound().expect("socket");
            for number in 0..COUNT {
                socket.send_to(&number.to_ne_bytes(), &path).expect("send");
            }
        });
        for number in 0..COUNT {
            let mut space = [0; 16];
            assert_eq!(inbox.recv(&mut space)?, 8);
            assert_eq!(space[..8], number.to_ne_bytes());
        }
        sender.join().expect("the sender");
        Ok(())
    });
}

pub(crate) fn s32_pipes(h: &Harness) {
    h.run(|| {
        let (mut reader, mut writer) = io::pipe()?;
        let writing = spawn(move || {
            let bytes = vec![7; 1 << 20];
            assert_eq!(writer.write(&bytes).expect("write"), 1 << 20);
            let slices = [IoSlice::new(b"the "), IoSlice::new(b"end")];
            assert_eq!(writer.write_vectored(&slices).expect("write"), 7);
        });
        let mut all = Vec::new();
        reader.read_to_end(&mut all)?;
        writing.join().expect("the writer");
        assert_eq!(all.len(), (1 << 20) + 7);
        assert_eq!(&all[1 << 20..], b"the end");
        Ok(())
    });
}

/// A FIFO that is opened by its name knows no `RWF_NOWAIT`.
pub(crate) fn s32_fifos(h: &Harness) {
    let folder = Folder::new();
    let path = folder.0.join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("a fifo");
    h.run(move || {
        let open = |write| File::options().read(true).write(write).open(&path);
        let (mut reader, mut writer) = (open(true)?, open(true)?);
        let writing = spawn(move || writer.write(&[3; 300_000]).expect("write"));
        let (mut count, mut space) = (0, vec![0; 10_000]);
        while count < 300_000 {
            count += reader.read(&mut space)?;
        }
        assert_eq!(writing.join().expect("the writer"), 300_000);
        Ok(())
    });
}

/// A regular file is read and written as ever: nobody is parked.
pub(crate) fn s32_files_do_not_park(h: &Harness) {
    let folder = Folder::new();
    let path = folder.0.join("file");
    h.run(move || {
        let others = Rc::new(Cell::new(0));
        let counter = Rc::clone(&others);
        let other = spawn(move || counter.set(1));
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
        for _ in 0..200 {
            file.write_all(&[1; 5000])?;
        }
        let slices = [IoSlice::new(b"the "), IoSlice::new(b"end")];
        assert_eq!(file.write_vectored(&slices)?, 7);
        let all = std::fs::read(&path)?;
        assert_eq!(all.len(), 1_000_007);
        assert_eq!(others.get(), 0, "another coroutine ran meanwhile");
        other.join().expect("the other");
        Ok(())
    });
}

/// From a file to a socket and from socket to socket: what std copies inside the kernel where it can.
pub(crate) fn s32_copies_fall_back(h: &Harness) {
    const LEN: usize = 700_000;
    let folder = Folder::new();
    let path = folder.0.join("file");
    std::fs::write(&path, vec![9; LEN]).expect("a file");
    h.run(move || {
        let (mut near, mut far) = pair()?;
        let (mut next, mut last) = pair()?;
        let sending =
            spawn(move || io::copy(&mut File::open(path).unwrap(), &mut near).expect("copy"));
        let passing = spawn(move || io::copy(&mut far, &mut next).expect("copy"));
        let mut all = Vec::new();
        last.read_to_end(&mut all)?;
        assert_eq!((sending.join().unwrap(), passing.join().unwrap()), (LEN as u64, LEN as u64));
        assert!(all.len() == LEN && all.iter().all(|&byte| byte == 9));
        Ok(())
    });
}

/// What std has for sockets that does not wait is as ever.
pub(crate) fn s32_the_rest_of_std_net(h: &Harness) {
    h.run(|| {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let accepting = spawn(move || {
            let names: Vec<_> =
                listener.incoming().take(2).map(|one| one.unwrap().peer_addr().unwrap()).collect();
            assert!(listener.take_error().expect("an option").is_none());
            names
        });
        let one = TcpStream::connect(address)?;
        let two = TcpStream::connect_timeout(&address, Duration::from_secs(60))?;
        let names = accepting.join().expect("accepting");
        assert_eq!(names, [one.local_addr()?, two.local_addr()?]);
        one.set_nodelay(true)?;
        assert!(one.nodelay()?);
        one.set_ttl(42)?;
        assert_eq!(one.ttl()?, 42);
        one.set_read_timeout(Some(Duration::from_secs(9)))?;
        one.set_write_timeout(Some(Duration::from_secs(8)))?;
        assert_eq!(one.read_timeout()?, Some(Duration::from_secs(9)));
        assert_eq!(one.write_timeout()?, Some(Duration::from_secs(8)));
        assert!(one.take_error()?.is_none());
        Ok(())
    });
}

/// TCP with a full backlog: the kernel tries again after a second. Only this coroutine waits for it.
pub(crate) fn s32_connect_parks(h: &Harness) {
    h.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        // SAFETY: a listening socket: this only makes its backlog short.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let address = listener.local_addr()?;
        let first = TcpStream::connect(address)?;
        let waits = Rc::new(Cell::new(true));
        let still = Rc::clone(&waits);
        let connecting = spawn(move || {
            let stream = TcpStream::connect(address).expect("connect");
            still.set(false);
            stream
        });
        let mut steps = 0;
        yield_now();
        let mut accepted = vec![listener.accept()?];
        while waits.get() {
            steps += 1;
            thread::sleep(Duration::from_millis(1));
        }
        let connected = connecting.join().expect("connected");
        accepted.push(listener.accept()?);
        assert!(steps > 2, "it did not wait");
        drop((accepted, connected, first));
        Ok(())
    });
}
