// The Python face of the calendar, of admission and of the simulated fleet: zerolayer.guard.deadline._native. Called on the loop only. What comes from Python is checked here: slots exist, and so on.
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "deadline_casters.hpp"
#include "simulated_fleet.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace zl::deadline;

namespace {

// Names that nobody can guess: whoever shares an address, as behind one proxy, could give back what others wait for.
class Draws {
 public:
  explicit Draws(nb::callable urandom) : urandom_(std::move(urandom)) {}
  std::string operator()() {
    if (at_ == pool_.size()) {
      const nb::bytes drawn = nb::cast<nb::bytes>(urandom_(kBytes * kAtOnce));
      if (drawn.size() != kBytes * kAtOnce) throw nb::value_error("too few random bytes");
      pool_.assign(drawn.c_str(), drawn.size());
      at_ = 0;
    }
    std::string name;
    for (const size_t end = at_ + kBytes; at_ < end; at_ += 3) {
      const uint32_t bits = uint32_t(uint8_t(pool_[at_])) << 16 | uint32_t(uint8_t(pool_[at_ + 1])) << 8 | uint8_t(pool_[at_ + 2]);
      for (int shift = 18; shift >= 0; shift -= 6) name.push_back(kDigits[bits >> shift & 63]);
    }
    return name;
  }

 private:
  static constexpr size_t kBytes = 9, kAtOnce = 128;
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

  nb::callable urandom_;
  std::string pool_;
  size_t at_ = 0;
};

int in(const Calendar& calendar, int slot) {
  if (slot < 0 || slot >= calendar.slots) throw std::out_of_range("there is no such slot");
  return slot;
}

void bind_booking(nb::module_& m) {
  nb::class_<Booking>(m, "Booking", nb::is_final())
      .def(nb::init<Ns, int, const Work&, const Terms&, int64_t, Ns, Ns, Ns, bool>(), "start_ns"_a, "slot"_a, "work"_a, "terms"_a, "steps"_a,
           "typical_ns"_a, "need_ns"_a, "weight_ns"_a, "soft"_a = false)
      .def_ro("start_ns", &Booking::start_ns)
      .def_ro("slot", &Booking::slot)
      .def_prop_ro("work", [](const Booking& self) { return self.work; })
      .def_prop_ro("terms", [](const Booking& self) { return self.terms; })
      .def_prop_ro("due_ns", [](const Booking& self) { return self.terms.due_ns(); })
      .def_ro("steps", &Booking::steps)
      .def_ro("typical_ns", &Booking::typical_ns)
      .def_ro("need_ns", &Booking::need_ns)
      .def_ro("weight_ns", &Booking::weight_ns)
      .def_ro("single_ns", &Booking::single_ns)
      .def_ro("hold_ns", &Booking::hold_ns)
      .def_ro("strict", &Booking::strict)
      .def_ro("soft", &Booking::soft)
      .def_rw("held", &Booking::held)
      .def_rw("early_ns", &Booking::early_ns)
      .def_ro("ticket", &Booking::ticket)
      .def_prop_ro("credential", [](const Booking& self) { return named(self.credential); })
      .def_prop_ro("key", [](const Booking& self) { return nb::make_tuple(named(self.credential), named(self.key)); })
      .def_prop_ro("spare_ns", &Booking::spare_ns);
}

void bind_calendar(nb::module_& m) {
  nb::class_<Calendar>(m, "Calendar", nb::is_final())
      .def("__init__",
           [](Calendar* self, int slots, Ns grace_ns, Ns horizon_ns, int reserved) {
             if (slots < 1 || reserved < 0) throw nb::value_error("a calendar has slots");
             new (self) Calendar(slots, grace_ns, horizon_ns, reserved);
           },
           "slots"_a, "grace_ns"_a, "horizon_ns"_a, "reserved"_a)
      .def_ro("slots", &Calendar::slots)
      .def("price", [](Calendar& self, Ns step_ns, Ns chunk_ns, Ns reserve_ns, Ns stall_ns, double rate, Ns spent_ns) {
        if (step_ns < 0 || chunk_ns < 0 || !(rate > 0)) throw nb::value_error("steps take time");
        self.prices = {step_ns, chunk_ns, reserve_ns, stall_ns, rate, spent_ns};
      })
      .def_prop_ro("free", &Calendar::free)
      .def_prop_ro("confirmed", &Calendar::confirmed)
      .def_prop_ro("open", &Calendar::open)
      .def_prop_ro("booked_ns", &Calendar::booked_ns)
      .def_prop_ro("bookings", &Calendar::booked)
      .def_prop_ro("booked", [](const Calendar& self) { return self.booked().size(); })
      .def("next_open_ms", [](Calendar& self, int slots, Ns now) { return self.next_open_ms(std::clamp(slots, 1, self.slots), now); })
      .def("standing", [](Calendar& self, Ns now) { return std::pair(self.open(), self.next_open_ms(1, now)); })
      .def("is_feasible", &Calendar::is_feasible)
      .def("ends", &Calendar::ends)
      .def("due_ns", [](const Calendar& self, int slot) { return self.due_ns(in(self, slot)); })
      .def("late", &Calendar::late)
      .def("overdue", &Calendar::overdue)
      .def("fit", [](Calendar& self, const Work& work, const Terms& terms, Ns now) { return self.fit(work, terms, now); })
      .def("claim", &Calendar::claim)
      .def("claim_all", &Calendar::claim_all)
      .def("in_the_way", &Calendar::in_the_way)
      .def("redeem", [](Calendar& self, Booking& booking, Ns now) { return self.redeem(booking, false, now); })
      .def("confirm", [](Calendar& self, int slot, const Work& work, Ns now) { return self.confirm(in(self, slot), work, now); })
      .def("ending", [](Calendar& self, int slot) { self.ending(in(self, slot)); })
      .def("release", [](Calendar& self, int slot) { self.release(in(self, slot)); })
      .def("on_step", [](Calendar& self, int slot, Ns ended_ns, int64_t steps) { self.on_step(slot < 0 ? -1 : in(self, slot), ended_ns, steps); })
      .def("shorten", [](Calendar& self, int slot, const Work& work) { self.shorten(in(self, slot), work); })
      .def("skip", [](Calendar& self, int slot, int64_t tokens, int64_t chunk_tokens) {
        if (chunk_tokens < 1) throw nb::value_error("a chunk has tokens");
        self.skip(in(self, slot), tokens, chunk_tokens);
      })
      .def("book",
           [](Calendar& self, const Work& work, const Terms& terms, const Spaced& spaced, bool soft, int room, bool waited, Ns now) {
             return self.book(work, terms, spaced, soft, Room(room), waited, now);
           },
           "work"_a, "terms"_a, "spaced"_a.none(), "soft"_a, "room"_a, "waited"_a, "now"_a)
      .def("tell", &Calendar::tell, "work"_a, "terms"_a, "spaced"_a.none(), "now"_a)
      .def("void", &Calendar::forget);
}

void bind_admission(nb::module_& m) {
  nb::class_<Attendance>(m, "Attendance", nb::is_final())
      .def(nb::init<>())
      .def_ro("kept", &Attendance::kept)
      .def_ro("lapsed", &Attendance::lapsed)
      .def("seen", [](const Attendance& self) {
        nb::list seen;
        for (const Attendance::Seen& each : self.seen()) seen.append(nb::make_tuple(named(each.credential), nb::make_tuple(each.kept, each.lapsed)));
        return seen;
      })
      .def("remember", [](Attendance& self, nb::handle credential, double kept, double lapsed) { self.remember(name_of(credential), kept, lapsed); })
      .def("trusts", [](const Attendance& self, nb::handle credential) { return self.trusts(name_of(credential)); })
      .def("by_hand", [](const Attendance& self, nb::handle credential) { return self.by_hand(name_of(credential)); })
      .def("came", [](Attendance& self, nb::handle credential) { self.came(name_of(credential)); })
      .def("stayed_away", [](Attendance& self, nb::handle credential) { self.stayed_away(name_of(credential)); });
  nb::class_<Tickets>(m, "Tickets", nb::is_final())
      .def("__init__", [](Tickets* self, Ns grace_ns, nb::callable urandom) { new (self) Tickets(grace_ns, Draws(urandom)); })
      .def("__len__", &Tickets::size)
      .def("__iter__", [](const Tickets& self) { return nb::iter(nb::cast(self.all())); })
      .def("of", [](const Tickets& self, nb::handle credential) { return self.of(name_of(credential)); })
      .def("of_ticket", [](const Tickets& self, const std::string& ticket, nb::handle credential) { return self.of_ticket(ticket, name_of(credential)); })
      .def("add", [](Tickets& self, const Held& booking, const Asker& asker, nb::handle key) { self.add(booking, asker, name_of(key)); })
      .def("file", [](Tickets& self, const Held& booking, nb::handle credential, nb::handle key, const std::string& ticket) {
        self.file(booking, name_of(credential), name_of(key), ticket);
      })
      .def("remove", &Tickets::remove)
      .def("match", [](const Tickets& self, const Asker& asker, nb::handle key, Ns now, std::optional<Ns> heard_ns) {
        return self.match(asker, name_of(key), now, heard_ns.value_or(now));
      }, "asker"_a, "key"_a, "now_ns"_a, "heard_ns"_a = nb::none())
      .def("spaced", &Tickets::spaced);
  nb::class_<Answer>(m, "Answer", nb::is_final())
      .def_prop_ro("kind", [](const Answer& self) { return int(self.kind); })
      .def_ro("slot", &Answer::slot)
      .def_ro("due_ns", &Answer::due_ns)
      .def_ro("booked", &Answer::booked)
      .def_ro("booking", &Answer::booking)
      .def_ro("start_ns", &Answer::start_ns)
      .def_ro("ticket", &Answer::ticket)
      .def_prop_ro("needs", [](const Answer& self) { return int(self.needs); })
      .def_ro("needed_ns", &Answer::needed_ns)
      .def_ro("limit_ns", &Answer::limit_ns)
      .def_prop_ro("counts", &Answer::counts)
      .def_ro("no_shows", &Answer::no_shows)
      .def_ro("early", &Answer::early)
      .def_ro("late", &Answer::late)
      .def_prop_ro("came_ns", [](const Answer& self) { return self.came_ns == kNever ? std::nullopt : std::optional(self.came_ns); });
  nb::class_<Admission>(m, "Admission", nb::is_final())
      .def("__init__", [](Admission* self, std::shared_ptr<Calendar> calendar, nb::callable urandom) { new (self) Admission(calendar, Draws(urandom)); })
      .def_ro("attendance", &Admission::attendance)
      .def_ro("tickets", &Admission::tickets)
      .def_prop_rw("heard_ns", [](const Admission& self) { return self.heard_ns == kNever ? std::nullopt : std::optional(self.heard_ns); },
                   [](Admission& self, std::optional<Ns> heard_ns) { self.heard_ns = heard_ns.value_or(kNever); }, nb::arg("heard_ns").none())
      .def_rw("told_ns", &Admission::told_ns)
      .def_rw("ends_soon", &Admission::ends_soon)
      .def("ask", &Admission::ask)
      .def("refuse_longer", &Admission::refuse_longer)
      .def("never", [](const Admission& self, const Wish& wish) {
        Answer answer;
        self.never(wish, answer);
        return answer;
      })
      .def("began_unbooked", &Admission::began_unbooked)
      .def("resume", [](Admission& self, const Held& booking, Ns now) {
        int no_shows = 0;
        const int slot = self.resume(*booking, now, no_shows);
        return std::pair(slot, no_shows);
      })
      .def("void", [](Admission& self, const Held& booking) { self.forget(*booking); })
      .def("sweep", &Admission::sweep);
}

void bind_simulation(nb::module_& m) {
  nb::class_<Rules>(m, "Rules", nb::is_final())
      .def("__init__", [](Rules* self, Ns first_token_ns, Ns per_token_ns, Ns end_ns, Ns horizon_ns, Ns grace_ns, bool patient, int64_t senders, int64_t retries) {
        new (self) Rules{first_token_ns, per_token_ns, end_ns, horizon_ns, grace_ns, patient, senders, retries};
      });
  nb::class_<Engine>(m, "Engine", nb::is_final())
      .def("__init__", [](Engine* self, int slots, Ns decode_ns, Ns mixed_ns, Ns chunk_ns, Ns step_ns, Ns full_ns, Ns reserve_ns, Ns stall_ns, double rate) {
        new (self) Engine{slots, decode_ns, mixed_ns, chunk_ns, {step_ns, full_ns, reserve_ns, stall_ns, rate}};
      });
  const auto column = [](Numbers numbers) { return std::make_shared<const Numbers>(std::move(numbers)); };
  const auto known = [](int64_t request, const Numbers& numbers) {
    if (request < 0 || size_t(request) >= numbers.size()) throw std::out_of_range("there is no such request");
  };
  struct Node {
    Column chunks;
    SimulatedNode node;
  };
  nb::class_<Node>(m, "SimulatedNode", nb::is_final())
      .def("__init__", [column](Node* self, const Engine& engine, const Rules& rules, Numbers chunks, Numbers tokens, bool calm) {
        if (chunks.size() != tokens.size()) throw nb::value_error("requests have both lengths");
        const auto shared = column(std::move(chunks));
        new (self) Node{shared, SimulatedNode(engine, rules, shared, column(std::move(tokens)), calm)};
      })
      .def_prop_ro("free", [](const Node& self) { return self.node.free(); })
      .def_prop_ro("next_step", [](const Node& self) { return self.node.next_step(); })
      .def("offer", [known](Node& self, int64_t request, Ns at) {
        known(request, *self.chunks);
        const Decision decision = self.node.offer(request, at);
        return std::pair(int(decision.fate), decision.back_ns);
      })
      .def("ask", [known](Node& self, int64_t request, Ns at, int64_t attempt, Ns since) {
        known(request, *self.chunks);
        const Decision decision = self.node.ask(request, at, attempt, since);
        return std::pair(int(decision.fate), decision.back_ns);
      })
      .def("advance", [](Node& self, Ns at) { self.node.advance(at); })
      .def_prop_ro("ended", [](const Node& self) {
        nb::list ended;
        for (const Served& each : self.node.ended) ended.append(nb::make_tuple(each.request, each.start_ns, each.end_ns, each.due_ns));
        return ended;
      });
  nb::class_<Outcome>(m, "SimulatedOutcome", nb::is_final())
      .def_ro("at_once", &Outcome::at_once)
      .def_ro("booked", &Outcome::booked)
      .def_ro("late", &Outcome::late)
      .def_ro("refused", &Outcome::refused)
      .def_ro("infeasible", &Outcome::infeasible)
      .def_ro("last_ns", &Outcome::last_ns)
      .def_ro("busy_ns", &Outcome::busy_ns)
      .def_ro("tokens", &Outcome::tokens);
  nb::class_<SimulatedFleet>(m, "SimulatedFleet", nb::is_final())
      .def("__init__", [column](SimulatedFleet* self, int nodes, const Engine& engine, const Rules& rules, Numbers chunks, Numbers tokens) {
        new (self) SimulatedFleet(nodes, engine, rules, column(std::move(chunks)), column(std::move(tokens)));
      })
      .def("send", &SimulatedFleet::send, nb::call_guard<nb::gil_scoped_release>())
      .def("finish", &SimulatedFleet::finish, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace

NB_MODULE(_native, m) {
  bind_booking(m);
  bind_calendar(m);
  bind_admission(m);
  bind_simulation(m);
}
