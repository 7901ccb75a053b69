//! How much memory an idle connection has. One test, in a process of its own: it counts.
#![allow(unsafe_code)]

use coracle_loop::Loop;
use coracle_net::{Address, Buffer, Conn, Listener, Settings};
use coracle_tls::{ClientSettings, ClientTls, Identity, Roots, Secure, ServerTls};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

thread_local! {
    /// How many bytes this thread has allocated and not freed.
    static HELD: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: it is the system's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.set(HELD.get() + layout.size() as isize);
        // SAFETY: as it was called.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        HELD.set(HELD.get() - layout.size() as isize);
        // SAFETY: as it was called.
        unsafe { System.dealloc(place, layout) }
    }
}

/// So many connections, and a few before them so that what all share is there.
const COUNT: usize = 100;

/// What one may have, all of it: connection, layer, session, keys.
const LIMIT_BYTES: isize = 12 << 10;

/// Runs the loop until `reached`.
fn run_until(lp: &Loop, reached: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if reached() {
            return;
        }
        lp.after(Duration::from_millis(1), |_| ());
        lp.run_once().expect("a turn");
    }
    panic!("it never is");
}

#[test]
fn m1_idle_connection_is_small_and_a_silent_one_smaller() {
    let identity = Identity::self_signed(["localhost"]).unwrap();
    let client =
        ClientTls::new(ClientSettings::trusting(Roots::identity(&identity).unwrap())).unwrap();
    let tls = ServerTls::new(identity).unwrap();
    let lp = Loop::new().unwrap();
    let any: Address = "127.0.0.1:0".parse().unwrap();
    let (opened, echoed) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (count_opened, count_echoed) = (Rc::clone(&opened), Rc::clone(&echoed));
    let listener = Listener::bind(&lp, &any, Settings::default(), move |_| {
        count_opened.set(count_opened.get() + 1);
        let count = Rc::clone(&count_echoed);
        Secure::new(tls.layer(), |_| {
            move |conn: &mut Conn<'_>, input: &mut Buffer| {
                count.set(count.get() + 1);
                conn.write(input.take_all());
                Ok(())
            }
        })
    })
    .unwrap();
    let address = listener.local_address(&lp).unwrap().ip().unwrap();
    let kept = RefCell::new(Vec::new());
    // Connections that have said nothing.
    let silent = |count: usize| {
        let expected = opened.get() + count;
        let sockets: Vec<TcpStream> =
            (0..count).map(|_| TcpStream::connect(address).unwrap()).collect();
        run_until(&lp, || opened.get() == expected);
        sockets
    };
    // Connections that have shaken hands and been answered once, 10000 bytes.
    let idle = |count: usize| {
        let client = client.clone();
        let (tell, told) = mpsc::channel();
        let asking = thread::spawn(move || {
            for _ in 0..count {
                let mut stream =
                    client.connect("localhost", TcpStream::connect(address).unwrap()).unwrap();
                let mut content = vec![7; 10_000];
                stream.write_all(&content).unwrap();
                stream.read_exact(&mut content).unwrap();
                tell.send(stream).unwrap();
            }
        });
        let got = RefCell::new(Vec::new());
        run_until(&lp, || {
            got.borrow_mut().extend(told.try_iter());
            got.borrow().len() == count
        });
        asking.join().unwrap();
        got.into_inner()
    };
    let sockets = silent(COUNT);
    let before = HELD.get();
    let more = silent(COUNT);
    let silent_bytes = (HELD.get() - before) / COUNT as isize;
    drop((sockets, more));
    kept.borrow_mut().extend(idle(COUNT));
    run_until(&lp, || true);
    let before = HELD.get();
    let more = idle(COUNT);
    let held = more.capacity() * size_of_val(&more[0]); // which is ours
    let idle_bytes = (HELD.get() - before - held as isize) / COUNT as isize;
    kept.borrow_mut().extend(more);
    assert!(echoed.get() >= 2 * COUNT);
    println!("a silent connection has {silent_bytes} bytes, an idle one {idle_bytes}");
    assert!((1..LIMIT_BYTES).contains(&idle_bytes), "{idle_bytes} bytes");
    assert!((1..2 << 10).contains(&silent_bytes), "{silent_bytes} bytes");
    listener.close(&lp);
}
