# cmake -DNM=nm -DOBJECTS=a.o|b.o -P isa_symbols.cmake
# Fails if an object of one instruction set holds a function that the linker may share with others
# (a weak symbol, as an instance of a template of the standard library is): an older CPU could be
# given the newer one's code.
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
