# cmake -DNM=nm -DOBJECTS=a.o|b.o -P isa_symbols.cmake
# Fails if an object of one instruction set has a weak symbol, such as an instance of a standard
# library template. The linker shares weak functions between objects, so an older CPU could get code
# for a newer one.
string(REPLACE "|" ";" objects "${OBJECTS}")
if(NOT objects)
  message(FATAL_ERROR "no objects given")
endif()
set(shared)
foreach(object ${objects})
  execute_process(COMMAND "${NM}" -C --defined-only "${object}"
    OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]* [WVu] [^\n]*" weak "${symbols}")
  foreach(symbol ${weak})
    string(APPEND shared "${object}: ${symbol}\n")
  endforeach()
endforeach()
if(shared)
  message(FATAL_ERROR "symbols that are not of one instruction set alone:\n${shared}")
endif()
