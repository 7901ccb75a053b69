//! Callbacks, coroutines and futures in the life of one connection, on one thread.
//!
//! ```text
//! run:   cargo run -p coracle --example 15_three_styles -- 127.0.0.1:7000
//! type:  nc 127.0.0.1 7000          soup, or anything else there is to eat
//! ```
//!
//! ```text
//!   a line ──► callback ──spawn──► coroutine ──block_on──► future ──channel──► future: the kitchen
//!                                      │                                          │
//!   the answer ◄───────────────────────┘ ◄──────────────────── channel ───────────┘
//! ```
//!
//! A callback may not wait, so it starts a coroutine. That is a plain function and waits as it likes, also for
//! a future. And the future waits for a message. Nobody changes his thread, and nothing is `Send`. Ctrl-C ends
//! it.

use coracle::future::{sleep, spawn_future, timeout};
use coracle::net::{Buffer, Conn, ConnHandle, Listener, Protocol, Settings};
use coracle::sync::{Receiver, Sender, channel};
use coracle::{Loop, block_on, run_on, spawn};
use std::io;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

/// Something to cook, and where to put it.
struct Order {
    dish: Rc<str>,
    counter: Sender<String>,
}

/// Callbacks: one value per connection.
struct Guest {
    orders: Sender<Order>,
}

impl Protocol for Guest {
    fn on_data(&mut self, conn: &mut Conn<'_>, input: &mut Buffer) -> io::Result<()> {
        while let Some(line) = input.take_line() {
            let dish = Rc::from(String::from_utf8_lossy(line).trim());
            say("callback", &format!("somebody wants {dish}"));
            let (guest, orders) = (conn.handle(), self.orders.clone());
            spawn(move || serve(&guest, &orders, dish));
        }
        Ok(())
    }
}

/// A coroutine: a plain function, which waits for a future as for anything else.
fn serve(guest: &ConnHandle, orders: &Sender<Order>, dish: Rc<str>) -> io::Result<()> {
    say("coroutine", &format!("orders {dish}"));
    let meal = block_on(timeout(Duration::from_secs(30), cooked(orders, Rc::clone(&dish))))??;
    say("coroutine", &format!("serves {dish}"));
    guest.write(meal + "\n");
    Ok(())
}

/// A future, awaited by the coroutine: it waits for room in one channel, and for a message in another.
async fn cooked(orders: &Sender<Order>, dish: Rc<str>) -> String {
    let (counter, meal) = channel(1);
    if orders.send_async(Order { dish, counter }).await.is_err() {
        return "the kitchen is closed".to_owned();
    }
    meal.recv_async().await.unwrap_or_else(|_| "there was a fire".to_owned())
}

/// Another future, which the loop runs by itself.
async fn kitchen(orders: Receiver<Order>) {
    while let Ok(Order { dish, counter }) = orders.recv_async().await {
        sleep(Duration::from_millis(20)).await;
        say("future", &format!("has cooked {dish}"));
        let _ = counter.send_async(format!("one {dish}, hot")).await;
    }
}

fn say(who: &str, what: &str) {
    println!("{who:<9} {what}    ({:?})", thread::current().id());
}

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7000".to_owned());
    let address = address.parse()?;
    let lp = Loop::new()?;
    lp.on_terminate(|lp| lp.stop())?;
    run_on(&lp.clone(), move || {
        let (orders, waiting) = channel(8);
        spawn_future(kitchen(waiting));
        let listener = Listener::bind(&lp, &address, Settings::default(), move |_peer| Guest {
            orders: orders.clone(),
        })?;
        println!("open on {}", listener.local_address(&lp)?);
        Ok(()) // `run_on` returns when all are over: the kitchen closes when the loop is stopped
    })
}
